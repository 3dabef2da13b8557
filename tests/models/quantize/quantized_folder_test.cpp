// Folders of MLX and of compressed-tensors by GPTQ and AWQ: scales fold exactly, the model loses
// less than by rounding, and config.json says what their programs read.
#include "weft/models/quantize/quantized_folder.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/models/enlarged_family.h"
#include "tests/models/model_logits.h"
#include "tests/support/run_ranks.h"
#include "tests/support/shared_folder.h"
#include "weft/models/convert/export_loaded.h"
#include "weft/models/load/load.h"
#include "weft/models/quantize/collect.h"

namespace weft::models {
namespace {

using dist::Group;
using nlohmann::json;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

constexpr int64_t kFolderChunk = 48;

// A random model of a family, enlarged, whose norms spread as trained ones do and whose biases are
// not 0, what its matrices read, and its logits.
class FolderModel {
 public:
  explicit FolderModel(const std::string& family) {
    std::filesystem::create_directory(dir_.at("plain"));
    json config =
        json::parse(core::read_text_file(test::family_path(family, "config.json"), 1 << 20));
    test::enlarge(config);
    dir_.write("plain/config.json", config.dump());
    InitOptions options;
    options.seed = 3;
    options.std = 0.05;
    const auto made = make_model(config_from_json(config, dir_.path()), Group(), options);
    at::manual_seed(3);
    for (at::Tensor& parameter : made->parameters()) {
      const at::NoGradGuard no_grad;
      if (parameter.dim() == 1) parameter.add_(1).mul_(at::randn_like(parameter).exp()).sub_(1);
    }
    export_loaded(*made, io::Dtype::kF32, uint64_t{1} << 30, dir_.at("plain"));
    file_ = io::TensorFile::open(dir_.at("plain"));
    const int64_t vocabulary = read_config(*file_).vocab_size;
    ids_BT_ = at::randint(vocabulary, {1, 4 * kFolderChunk}, at::kLong);
    logits_TV_ = logits(dir_.at("plain"));
  }

  void collect() {
    CollectOptions options;
    options.context = kFolderChunk;
    options.takes_products = true;
    LoadOptions load;
    load.is_trainable = true;
    const LoadedModel loaded = load_model(*file_, Group(), load);
    const std::span tokens(ids_BT_.const_data_ptr<int64_t>(), static_cast<size_t>(ids_BT_.numel()));
    importance = collect_importance(*loaded.model, tokens, options, [](int64_t, int64_t) {});
  }

  at::Tensor logits(const std::string& folder) const {
    const LoadedModel loaded = load_model(*io::TensorFile::open(folder), Group());
    return test::logits_of(*loaded.model, ids_BT_.narrow(1, 0, kFolderChunk));
  }

  // Writes the model so; returns how far its logits are from the plain ones'.
  double lost(ExportOptions options, const std::string& method, double limit = 0) {
    written = dir_.at("written-" + std::to_string(++count_));
    std::filesystem::create_directory(written);
    QuantizedFolder form({parse_method(method, "test"), "FILE", importance, limit}, Group());
    options.form = &form;
    const json quantization =
        export_weights(*file_, options, Group(), written, [](uint64_t, uint64_t) {});
    export_files(*file_, quantization, "", written);
    notes = form.notes();
    bits_per_weight = form.bits_per_weight();
    return ((logits(written) - logits_TV_).norm() / logits_TV_.norm()).item<double>();
  }

  // The bytes of the weights that AWQ gives, written by `group` to a folder of the first rank's.
  std::string bytes_of(ExportOptions options, const dist::Group& group) {
    const std::string own = dir_.at("of-" + std::to_string(++count_));
    std::filesystem::create_directory(own);
    const std::string folder = test::shared_folder(own, group);
    QuantizedFolder form({parse_method("awq", "test"), "FILE", importance, 0}, group);
    options.form = &form;
    export_weights(*file_, options, group, folder, [](uint64_t, uint64_t) {});
    const std::string bytes = core::read_text_file(folder + "/model.safetensors", 1 << 26);
    group.barrier();
    return bytes;
  }

  std::string error(const ExportOptions& options, const std::string& method, double limit = 0) {
    return replaced(error_text([&] { lost(options, method, limit); }), dir_.path(), "DIR");
  }

  json config() const {
    return json::parse(core::read_text_file(written + "/config.json", 1 << 20));
  }

  Importance importance;
  std::string written;
  std::vector<std::string> notes;
  double bits_per_weight = 0;

 private:
  TempDir dir_;
  std::shared_ptr<const io::TensorFile> file_;
  at::Tensor ids_BT_, logits_TV_;
  int count_ = 0;
};

ExportOptions folder_options(int64_t bits) {
  ExportOptions options;
  options.scheme = {quant::Mode::kAffine, bits, 64};
  return options;
}

ExportOptions compressed_options(int64_t bits, quant::Offsets offsets = quant::Offsets::kMiddle) {
  ExportOptions options = folder_options(bits);
  options.format = FolderFormat::kCompressed;
  options.offsets = offsets;
  return options;
}

std::vector<ExportOptions> all_formats(int64_t bits) {
  return {folder_options(bits), compressed_options(bits),
          compressed_options(bits, quant::Offsets::kZeroPoints)};
}

// All formats are as good as each other for what AWQ folds, so the other families have one.
std::vector<ExportOptions> formats_for(const std::string& family, int64_t bits) {
  std::vector<ExportOptions> formats = all_formats(bits);
  if (family != "llama_bias") formats.resize(1);
  return formats;
}

std::vector<const char*> methods_for(const std::string& family) {
  if (family != "llama_bias") return {"awq+gptq"};
  return {"gptq", "awq", "awq+gptq"};
}

// With biases, with norms that are stored less one and behind layers as well, with rows of several
// matrices in one tensor, with norms of heads.
TEST(QuantizedFolder, ByGptqAndAwqLosesLessThanByRounding) {
  for (const char* family : {"llama_bias", "gemma2", "phi3", "qwen3"}) {
    FolderModel model(family);
    model.collect();
    for (const ExportOptions& options : formats_for(family, 4)) {
      const double rounded = model.lost(options, "round");
      // Both after one another show what each does; each alone is the same code for every family.
      for (const char* method : methods_for(family)) {
        const double bound = method == std::string("awq") ? 1 : 0.8;
        EXPECT_LT(model.lost(options, method), bound * rounded) << family << " " << method;
        EXPECT_TRUE(model.notes.empty()) << model.notes[0];
      }
    }
  }
}

// Scales were folded into norms, rows and biases: what is left is about the rounding to 8 bits.
TEST(QuantizedFolder, ByAwqComputesTheSame) {
  for (const char* family : {"llama_bias", "gemma2", "phi3", "qwen3"}) {
    FolderModel model(family);
    model.collect();
    const double rounded = model.lost(folder_options(8), "round");
    EXPECT_LT(rounded, 0.2) << family;
    const auto norm = [&](const std::string& folder) {
      return io::load_tensor(*io::TensorFile::open(folder), "model.layers.1.input_layernorm.weight",
                             at::kFloat);
    };
    const at::Tensor before = norm(model.written);
    for (const ExportOptions& options : formats_for(family, 8)) {
      EXPECT_LT(model.lost(options, "awq"), 1.5 * rounded) << family;
      EXPECT_GT((norm(model.written) - before).abs().max().item<double>(), 0.1) << family;
    }
  }
}

// What a mixture's norm takes is made good in the router, in each expert and in the shared one with
// what weighs it. Rounding alone may send a token to another expert, so that more is lost.
TEST(QuantizedFolder, ByAwqOfAMixtureComputesTheSame) {
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    FolderModel model(family);
    model.collect();
    const double rounded = model.lost(folder_options(8), "round");
    const auto read = [&](const std::string& name) {
      return io::load_tensor(*io::TensorFile::open(model.written), name, at::kFloat);
    };
    const std::string norm = "model.layers.1.post_attention_layernorm.weight";
    const at::Tensor before = read(norm);
    EXPECT_LT(model.lost(folder_options(8), "awq"), 1.5 * rounded) << family;
    EXPECT_GT((read(norm) - before).abs().max().item<double>(), 0.1) << family;
  }
}

// More than 4 bits for those that need them.
TEST(QuantizedFolder, SpreadsItsBitsOverMatrices) {
  const std::pair<const char*, const char*> cases[] = {
      {"llama_bias", "awq+gptq"}, {"phi3", "gptq"}, {"qwen3", "awq"}, {"mixtral", "round"}};
  for (const auto& [family, method] : cases) {
    FolderModel model(family);
    model.collect();
    const double uniform = model.lost(folder_options(4), method);
    const double limit = model.bits_per_weight + 0.5;
    EXPECT_LT(model.lost(folder_options(4), method, limit), uniform) << family;
    EXPECT_LE(model.bits_per_weight, limit) << family;
    EXPECT_GT(model.bits_per_weight, limit - 0.2) << family;
    const json forms = model.config().at("quantization");
    EXPECT_GT(forms.size(), 3U) << forms;
    EXPECT_EQ(model.error(folder_options(4), method, 2.5)
                  .find("ConfigError: models.quantize: 2.5 bits per weight, expected at least "),
              0U)
        << family;
  }
}

TEST(QuantizedFolder, SaysInConfigJsonWhatItIs) {
  FolderModel model("qwen3");
  model.lost(folder_options(4), "round");
  const json mlx = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  EXPECT_EQ(model.config().at("quantization"), mlx);
  EXPECT_EQ(model.config().at("quantization_config"), mlx);
  for (const bool is_symmetric : {true, false}) {
    model.lost(
        compressed_options(4, is_symmetric ? quant::Offsets::kMiddle : quant::Offsets::kZeroPoints),
        "round");
    EXPECT_FALSE(model.config().contains("quantization"));
    const json weights = {{"actorder", nullptr},
                          {"block_structure", nullptr},
                          {"dynamic", false},
                          {"group_size", 64},
                          {"num_bits", 4},
                          {"observer", "minmax"},
                          {"observer_kwargs", json::object()},
                          {"strategy", "group"},
                          {"symmetric", is_symmetric},
                          {"type", "int"}};
    const json group = {{"input_activations", nullptr},
                        {"output_activations", nullptr},
                        {"targets", {"Linear"}},
                        {"weights", weights}};
    const json expected = {{"config_groups", {{"group_0", group}}},
                           {"format", "pack-quantized"},
                           {"global_compression_ratio", nullptr},
                           {"ignore", {"lm_head"}},
                           {"kv_cache_scheme", nullptr},
                           {"quant_method", "compressed-tensors"},
                           {"quantization_status", "compressed"},
                           {"sparsity_config", json::object()},
                           {"transform_config", json::object()},
                           {"version", "0.12.0"}};
    EXPECT_EQ(model.config().at("quantization_config"), expected);
    const auto file = io::TensorFile::open(model.written);
    EXPECT_EQ(file->find("model.embed_tokens.weight_packed"), nullptr);
    EXPECT_EQ(file->require("model.layers.0.mlp.up_proj.weight_packed").dtype, io::Dtype::kI32);
    EXPECT_EQ(file->find("model.layers.0.mlp.up_proj.weight_zero_point") == nullptr, is_symmetric);
  }
}

// Of a mixture experts are single and routers plain.
TEST(QuantizedFolder, HasTheExpertsOfAMixtureAsItsProgramReadsThem) {
  FolderModel model("mixtral");
  model.collect();
  const ExportOptions options = compressed_options(4);
  const double rounded = model.lost(options, "round");
  const json expected = {"model.layers.0.block_sparse_moe.gate",
                         "model.layers.1.block_sparse_moe.gate", "lm_head"};
  EXPECT_EQ(model.config().at("quantization_config").at("ignore"), expected);
  EXPECT_LT(model.lost(options, "gptq"), 0.9 * rounded);
  EXPECT_EQ(model.notes,
            std::vector<std::string>{
                "FILE: has no products of inputs of model.layers.0.block_sparse_moe.experts.0.w1 "
                "and 23 others, which are rounded without"});
  EXPECT_LT(model.lost(options, "awq"), rounded);
}

TEST(QuantizedFolder, OfAMixtureIsTheSameOnAnyNumberOfRanks) {
  FolderModel model("mixtral");
  model.collect();
  const std::string alone = model.bytes_of(folder_options(4), Group());
  for (const int ranks : {2, 3}) {
    test::run_ranks(ranks, [&](dist::World& world) {
      EXPECT_TRUE(model.bytes_of(folder_options(4), world.group()) == alone);
    });
  }
}

TEST(QuantizedFolder, TakesGemma4WithoutExperts) {
  FolderModel model("gemma4");
  EXPECT_EQ(model.error(compressed_options(4), "round"), "no error");
}

TEST(QuantizedFolder, RefusesWhatItCannotWrite) {
  FolderModel oss("gpt_oss");
  EXPECT_EQ(oss.error(compressed_options(4), "round"),
            "ConfigError: models.export: 'gpt_oss' has a layer's experts in one tensor, expected "
            "single ones for compressed-tensors; write MLX's format");
  FolderModel model("olmo2");
  model.collect();
  EXPECT_EQ(model.error(folder_options(4), "awq"),
            "ConfigError: models.quantize: AWQ of a model with norms after layers, expected layers "
            "like Llama's, whose norms, values and ups take the scales; use GPTQ");
  for (auto& [name, statistics] : model.importance.tensors) statistics.products = at::Tensor();
  EXPECT_EQ(model.error(folder_options(4), "gptq"),
            "ConfigError: FILE: has no products of inputs of this model's matrices, expected an "
            "importance matrix of this model that was made with products");
  FolderModel llama("llama");
  llama.collect();
  llama.importance.tensors.erase("blk.1.attn_q.weight");
  EXPECT_EQ(llama.error(folder_options(4), "awq"),
            "FormatError: importance matrix: says nothing of 'blk.1.attn_q.weight', expected its "
            "inputs; it is of another model");
  EXPECT_EQ(llama.error(compressed_options(4), "round", 5),
            "ConfigError: models.quantize: 5 bits per weight: expected MLX's format with affine "
            "codes, of which each matrix has its own bits");
  EXPECT_EQ(llama.error(compressed_options(4, quant::Offsets::kAny), "round"),
            "ConfigError: models.export: compressed-tensors with offsets of any kind, expected the "
            "middle or zero points; set ExportOptions::offsets");
  EXPECT_EQ(error_text([] { parse_method("gptq2", "--method"); }),
            "ConfigError: --method: 'gptq2', expected round, gptq, awq or awq+gptq");
}

}  // namespace
}  // namespace weft::models
