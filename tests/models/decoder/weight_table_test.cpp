// How the weights of the families stand in files, read and cut by the table.
#include "weft/models/decoder/weight_table.h"

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/io/load_tensor.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using test::family_path;
using testing::error_text;
using testing::replaced;

std::shared_ptr<const io::TensorFile> open_family(const std::string& name, const char* file = "") {
  return io::TensorFile::open(family_path(name, file));
}

at::Tensor tensor_of(const io::TensorFile& file, const std::string& name) {
  return io::load_tensor(file, name, at::kFloat);
}

// A rank's rows or columns of a weight, as they are laid out over all.
at::Tensor cut(const at::Tensor& whole, const shard::Layout& layout, int64_t rank) {
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : layout.of(rank)) {
    parts.push_back(whole.narrow(whole.dim() == 1 ? 0 : layout.dim, range.start, range.length));
  }
  return at::cat(parts, whole.dim() == 1 ? 0 : layout.dim);
}

// Rows of q, k, v and of gate, up in Phi-3's fused matrices: 6 heads, 3 kv heads of 8 and 20.
TEST(WeightTable, TakesEachRanksRowsOutOfFusedMatrices) {
  const auto folder = open_family("phi3"), gguf = open_family("phi3", "model.gguf");
  const std::string layer = "model.layers.1.";
  const at::Tensor qkv = tensor_of(*folder, layer + "self_attn.qkv_proj.weight");
  const at::Tensor gate_up = tensor_of(*folder, layer + "mlp.gate_up_proj.weight");
  const std::vector<std::pair<std::string, at::Tensor>> wholes = {
      {layer + "self_attn.q_proj", qkv.narrow(0, 0, 48)},
      {layer + "self_attn.k_proj", qkv.narrow(0, 48, 24)},
      {layer + "self_attn.v_proj", qkv.narrow(0, 72, 24)},
      {layer + "mlp.gate_proj", gate_up.narrow(0, 0, 20)},
      {layer + "mlp.up_proj", gate_up.narrow(0, 20, 20)}};
  for (const auto& file : {folder, gguf}) {
    for (int64_t n = 1; n <= 4; ++n) {
      const LoadPlan plan = make_plan(*file, n);
      for (int64_t rank = 0; rank < n; ++rank) {
        const WeightReader reader(*file, plan, rank);
        for (const auto& [base, whole] : wholes) {
          EXPECT_TRUE(at::equal(reader.linear(base, false)->dense_weight(),
                                cut(whole, reader.layout(base), rank)))
              << file->path() << ": " << base << ", rank " << rank << " of " << n;
        }
      }
    }
  }
}

TEST(WeightTable, CutsNormsOverAllHeadsAsTheirHeads) {
  for (const char* form : {"", "model.gguf"}) {
    const auto file = open_family("olmo2", form);
    const auto folder = open_family("olmo2");
    for (int64_t n = 1; n <= 4; ++n) {
      const LoadPlan plan = make_plan(*file, n);
      for (int64_t rank = 0; rank < n; ++rank) {
        const WeightReader reader(*file, plan, rank);
        for (const char* part : {"q", "k"}) {
          const std::string base = core::join("model.layers.0.self_attn.", part);
          const std::string norm = base + "_norm.weight";
          EXPECT_TRUE(at::equal(reader.vector(norm),
                                cut(tensor_of(*folder, norm), reader.layout(base + "_proj"), rank)))
              << norm << ", rank " << rank << " of " << n;
        }
      }
    }
  }
}

// GGUF has other names, for SmolLM3 and Granite other orders of rows, too.
TEST(WeightTable, ReadsTheSameFromBothKindsOfFile) {
  for (const char* name : {"smollm3", "granite", "phi3", "olmo2", "lfm2", "qwen3_next"}) {
    const auto folder = open_family(name), gguf = open_family(name, "model.gguf");
    const LoadPlan plan = make_plan(*folder, 1), gguf_plan = make_plan(*gguf, 1);
    const WeightReader reader(*folder, plan, 0), gguf_reader(*gguf, gguf_plan, 0);
    EXPECT_EQ(plan.weights().size(), gguf_plan.weights().size()) << name;
    for (const PlannedWeight& weight : plan.weights()) {
      const std::string& own = weight.rule.name;
      const bool is_vector = weight.rule.is_vector();
      const auto values = [&](const WeightReader& from) {
        return is_vector ? from.vector(own)
                         : from.linear(weight.rule.base(), false)->dense_weight();
      };
      const at::Tensor expected = values(reader);
      const at::Tensor got = values(gguf_reader).view_as(expected);
      // GGUF has the logarithm's exponential.
      EXPECT_TRUE(own.ends_with("A_log.weight") ? at::allclose(got, expected, 1e-6, 1e-6)
                                                : at::equal(got, expected))
          << name << ": " << own;
    }
  }
}

TEST(WeightTable, NamesAFusedMatrixOfAnotherShape) {
  const testing::TempDir dir;
  std::filesystem::copy(family_path("phi3"), dir.path());
  dir.write("config.json", replaced(dir.read("config.json"), "\"num_key_value_heads\": 3",
                                    "\"num_key_value_heads\": 2"));
  const auto file = io::TensorFile::open(dir.path());
  EXPECT_EQ(replaced(error_text([&] { make_plan(*file, 1); }), file->path(), "FILE"),
            "FormatError: FILE: tensor 'model.layers.0.self_attn.qkv_proj.weight': shape [96, 24], "
            "expected [80, 24]; the file and the model's config disagree");
}

TEST(WeightTable, PlacesAreInTheModelsOrder) {
  ModelConfig config = read_config(*open_family("qwen2_moe"));
  config.num_layers = 1;
  config.experts.num_experts = 2;
  std::vector<std::string> names;
  for (const PartPlace& place : weight_places(config)) names.push_back(model_name(config, place));
  const std::string attention = "model.layers.0.self_attn.", mlp = "model.layers.0.mlp.";
  EXPECT_EQ(names, (std::vector<std::string>{"model.embed_tokens",
                                             "model.layers.0.input_layernorm",
                                             attention + "q_proj",
                                             attention + "k_proj",
                                             attention + "v_proj",
                                             attention + "o_proj",
                                             "model.layers.0.post_attention_layernorm",
                                             mlp + "gate",
                                             mlp + "experts.0.gate_proj",
                                             mlp + "experts.0.up_proj",
                                             mlp + "experts.0.down_proj",
                                             mlp + "experts.1.gate_proj",
                                             mlp + "experts.1.up_proj",
                                             mlp + "experts.1.down_proj",
                                             mlp + "shared_expert_gate",
                                             mlp + "shared_expert.gate_proj",
                                             mlp + "shared_expert.up_proj",
                                             mlp + "shared_expert.down_proj",
                                             "model.norm",
                                             "lm_head"}));
}

}  // namespace
}  // namespace weft::models
