#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/io/views/plan_fixture.h"
#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/up_and_down.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/convert/export.h"
#include "weft/models/load/deferred_model.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/nn/parallel/parameter_info.h"

// Matrices of E4M3 numbers with scales, read for any number of ranks. The expected values follow
// the formats' description: each number, as libtorch converts it, times the scale of its block.

namespace weft::models {
namespace {

using dist::Group;
using io::Dtype;
using test::bytes_of_tensor;
using test::expect_up_and_down;
using test::family_path;
using test::on_ranks;
using test::up_and_down;
using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::replaced;
using testing::TempDir;

constexpr int64_t kFloatRows = 50, kFloatColumns = 94;

// A scale for each number of a matrix, from scales of blocks; the last blocks may be smaller.
at::Tensor spread_scales(const at::Tensor& scales, int64_t per_out, int64_t per_in, int64_t out,
                         int64_t in) {
  return scales.to(at::kFloat)
      .repeat_interleave(per_out, 0)
      .narrow(0, 0, out)
      .repeat_interleave(per_in, 1)
      .narrow(1, 0, in);
}

// A random matrix and how its scales are stored.
struct ScaledMatrix {
  at::Tensor codes, scales, values;

  ScaledMatrix(int seed, int64_t out, int64_t in, int64_t per_out, int64_t per_in,
               at::ScalarType type = at::kFloat) {
    at::manual_seed(static_cast<uint64_t>(seed));
    const int64_t rows = (out + per_out - 1) / per_out, columns = (in + per_in - 1) / per_in;
    codes = at::randn({out, in}).mul(50).to(at::kFloat8_e4m3fn);
    scales = (at::rand({rows, columns}) + 0.01).to(type);
    values = codes.to(at::kFloat) * spread_scales(scales, per_out, per_in, out, in);
  }
};

Dtype scale_dtype(const at::Tensor& scales) {
  return scales.scalar_type() == at::kFloat ? Dtype::kF32 : Dtype::kBF16;
}

// A file's tensors.
struct FloatTensors {
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;

  void add(const std::string& name, Dtype dtype, const at::Tensor& tensor) {
    types.push_back({name, dtype, tensor.sizes().vec()});
    bytes[name] = bytes_of_tensor(tensor);
  }
  void add(const std::string& base, const ScaledMatrix& floats, const char* suffix) {
    add(base + ".weight", Dtype::kF8E4M3, floats.codes);
    add(base + ".weight" + suffix, scale_dtype(floats.scales), floats.scales);
  }
  PlanFile file() const { return {types, bytes}; }
};

PlanOptions scale_blocks(int64_t rows, int64_t columns) {
  PlanOptions options;
  options.quantization.emplace();
  options.quantization->where = "CONFIG";
  options.quantization->all = {"fp8", 8, 0};
  options.quantization->scale_block = ScaleBlock{rows, columns};
  return options;
}

void expect_float_shards(const PlanFile& file, const WeightRules& all, const PlanOptions& options,
                         const at::Tensor& up, const at::Tensor& down) {
  expect_up_and_down<nn::DenseLinearImpl>(file.file(), all, up, down, options);
}

// Edges of the ranks' parts fall inside blocks, whose last ones are smaller.
TEST(ScaledFloatFiles, OfBlocksAreCutForAnyNumberOfRanks) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const ScaledMatrix up(1, kFloatRows, kFloatColumns, 16, 20, type),
        down(2, kFloatRows, kFloatColumns, 16, 20, type);
    FloatTensors tensors;
    tensors.add("up", up, "_scale_inv");
    tensors.add("down", down, "_scale_inv");
    expect_float_shards(tensors.file(), up_and_down(kFloatRows, kFloatColumns),
                        scale_blocks(16, 20), up.values, down.values);
  }
}

TEST(ScaledFloatFiles, WithAScaleForEachRowOrForAllAreCutForAnyNumberOfRanks) {
  const ScaledMatrix up(3, kFloatRows, kFloatColumns, 1, kFloatColumns),
      down(4, kFloatRows, kFloatColumns, kFloatRows, kFloatColumns);
  FloatTensors tensors;
  tensors.add("up", up, "_scale");
  tensors.add("down.weight", Dtype::kF8E4M3, down.codes);
  tensors.add("down.weight_scale", Dtype::kF32, down.scales.reshape({}));
  // What others round activations, keys and values by isn't needed.
  for (const char* name : {"up.input_scale", "down.activation_scale", "self_attn.k_scale"}) {
    tensors.add(name, Dtype::kF32, at::ones({1}));
  }
  expect_float_shards(tensors.file(), up_and_down(kFloatRows, kFloatColumns), {}, up.values,
                      down.values);
}

// Rows of one of several matrices that are one tensor, from a stack of such.
TEST(ScaledFloatFiles, AreTakenOutOfTensorsThatHoldMore) {
  constexpr int64_t kStack = 3, kRows = kFloatRows + 14, kFirst = 11;
  std::vector<at::Tensor> codes, scales, values;
  for (int i = 0; i < kStack; ++i) {
    const ScaledMatrix one(5 + i, kRows, kFloatColumns, 8, 10);
    codes.push_back(one.codes.view(at::kByte));
    scales.push_back(one.scales);
    values.push_back(one.values);
  }
  FloatTensors tensors;
  for (const char* base : {"up", "down"}) {
    tensors.add(std::string(base) + ".weight", Dtype::kF8E4M3, at::stack(codes));
    tensors.add(std::string(base) + ".weight_scale_inv", Dtype::kF32, at::stack(scales));
  }
  WeightRules stacked = up_and_down(kFloatRows, kFloatColumns);
  for (WeightRule& weight : stacked.weights) {
    weight.stored_rows = kRows;
    weight.stack_size = kStack;
    weight.stack_index = 2;
    weight.reorder.push_back({"narrow", {int64_t{0}, kFirst, kFloatRows}, {}, {}});
  }
  const at::Tensor expected = values[2].narrow(0, kFirst, kFloatRows);
  expect_float_shards(tensors.file(), stacked, scale_blocks(8, 10), expected, expected);
}

std::string floats_load_error(const FloatTensors& tensors, const PlanOptions& options = {}) {
  const PlanFile file = tensors.file();
  return replaced(error_text([&] {
                    const LoadPlan plan(file.file(), up_and_down(kFloatRows, kFloatColumns), 2,
                                        options);
                    WeightReader(file.file(), plan, 0).linear("up", false);
                  }),
                  file.file().path(), "FILE");
}

TEST(ScaledFloatFiles, AreRefusedWhereNothingSaysWhatAScaleIsOf) {
  const ScaledMatrix up(1, kFloatRows, kFloatColumns, 16, 20),
      down(2, kFloatRows, kFloatColumns, 16, 20);
  FloatTensors tensors;
  tensors.add("up", up, "_scale_inv");
  tensors.add("down", down, "_scale_inv");
  EXPECT_EQ(floats_load_error(tensors, scale_blocks(16, 20)), "no error");
  EXPECT_EQ(floats_load_error(tensors),
            "FormatError: FILE: tensor 'up.weight_scale_inv': 4 by 5 scales of a matrix of [50, "
            "94], expected config.json to say how large their blocks are");
  EXPECT_EQ(floats_load_error(tensors, scale_blocks(128, 128)),
            "FormatError: CONFIG: a scale for each block of 128 by 128, but 'up.weight_scale_inv' "
            "has 4 by 5, expected 1 by 1; the file and its config disagree");
}

TEST(ScaledFloatFiles, AreRefusedInPieces) {
  const ScaledMatrix up(1, kFloatRows, kFloatColumns, 16, 20),
      down(2, kFloatRows, kFloatColumns, 16, 20);
  FloatTensors tensors;
  const at::Tensor codes = up.codes.view(at::kByte);
  tensors.add("up.weight_shard-1-of-2", Dtype::kF8E4M3, codes.narrow(0, 0, 25));
  tensors.add("up.weight_shard-2-of-2", Dtype::kF8E4M3, codes.narrow(0, 25, 25));
  tensors.add("down", down, "_scale_inv");
  const PlanFile file = tensors.file();
  io::ShardInfo pieces;
  io::ParamRule& joined = pieces.params.emplace_back();
  joined.name = "up.weight";
  joined.from = {"up.weight_shard-1-of-2", "up.weight_shard-2-of-2"};
  joined.steps = {{"cat", {int64_t{0}}, {}, {}}, {"shard", {int64_t{0}}, {}, {}}};
  PlanOptions options = scale_blocks(16, 20);
  options.shard_info = &pieces;
  EXPECT_EQ(error_text(
                [&] { LoadPlan(file.file(), up_and_down(kFloatRows, kFloatColumns), 2, options); }),
            "ConfigError: parameter 'up.weight': F8_E4M3 in pieces or made of several tensors, "
            "expected one tensor with its scales; convert the model to bfloat16, then cut it");
}

const std::vector<std::string> kFloatModels = {"qwen3_fp8", "deepseek_v3_fp8"};

// For the passes that serve them, matrices are held in bfloat16: as if converted to that. Near what
// the exact numbers give only without experts: rounding chooses others, in transformers as well.
TEST(ScaledFloatModels, GiveTheLogitsOfTheirBfloat16FormsFromPanels) {
  for (const std::string& name : kFloatModels) {
    const auto file = io::TensorFile::open(family_path(name));
    const TempDir dir;
    export_files(*file, export_weights(*file, {}, Group(), dir.path(), [](uint64_t, uint64_t) {}),
                 "bfloat16", dir.path());
    const auto converted = io::TensorFile::open(dir.path());
    const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
    on_ranks([&](const Group& group) {
      LoadOptions options;
      options.panel_activation_bits = 16;
      const auto model = load_model(*file, group, options).model;
      const auto plain = load_model(*converted, group, options).model;
      const at::Tensor logits_TV = test::logits_of(*model, expected.ids_BT);
      EXPECT_TRUE(at::equal(logits_TV, test::logits_of(*plain, expected.ids_BT))) << name;
      if (name == "qwen3_fp8") {
        EXPECT_LE(test::largest_difference(logits_TV, expected.logits_TV), 0.1);
      }
    });
  }
}

TEST(ScaledFloatModels, AreHeldInBfloat16ForPanelsAndInTheTypeThatIsWantedElsewhere) {
  const auto file = io::TensorFile::open(family_path("deepseek_v3_fp8"));
  const LoadPlan plan = make_plan(*file, 1);
  const auto weight = [&](at::ScalarType dtype, MatrixPlace place) {
    const WeightReader reader(*file, plan, 0, {}, dtype, place);
    return reader.linear("model.layers.0.mlp.gate_proj", false);
  };
  const at::Tensor exact = weight(at::kFloat, {})->dense_weight();
  EXPECT_TRUE(at::equal(weight(at::ScalarType::Undefined, {})->dense_weight(), exact));
  const at::Tensor rounded = exact.to(at::kBFloat16);
  EXPECT_FALSE(at::equal(rounded.to(at::kFloat), exact));
  EXPECT_TRUE(at::equal(weight(at::kBFloat16, {})->dense_weight(), rounded));
  const auto panels = weight(at::kFloat, {16, false});
  ASSERT_NE(std::dynamic_pointer_cast<nn::PanelLinearImpl>(panels), nullptr);
  EXPECT_TRUE(at::equal(panels->dense_weight().to(at::kFloat), rounded.to(at::kFloat)));
}

// As plain numbers: exact in float32, and rounded once otherwise.
TEST(ScaledFloatModels, AreWrittenAsPlainNumbers) {
  const std::string folder = family_path("qwen3_fp8");
  const auto file = io::TensorFile::open(folder);
  const LoadPlan plan = make_plan(*file, 1);
  const at::Tensor exact =
      WeightReader(*file, plan, 0).linear("model.layers.1.self_attn.o_proj", false)->dense_weight();
  for (const auto& [asked, type] : {std::pair{std::optional(at::kFloat), at::kFloat},
                                    std::pair{std::optional<at::ScalarType>(), at::kBFloat16}}) {
    const TempDir dir;
    ExportOptions options;
    options.dtype = asked;
    const auto quantization =
        export_weights(*file, options, Group(), dir.path(), [](uint64_t, uint64_t) {});
    EXPECT_TRUE(quantization.is_null());
    const auto written = io::TensorFile::open(dir.path());
    EXPECT_TRUE(
        at::equal(io::load_tensor(*written, "model.layers.1.self_attn.o_proj.weight", at::kFloat),
                  exact.to(type).to(at::kFloat)));
    EXPECT_EQ(written->find("model.layers.1.self_attn.o_proj.weight_scale_inv"), nullptr);
  }
}

// Trainers make the layers first and fill them later.
TEST(ScaledFloatModels, AreTrainedAsPlainNumbers) {
  const std::shared_ptr<const io::TensorFile> file = io::TensorFile::open(family_path("qwen3_fp8"));
  const DeferredModel deferred = defer_model(file, Group(), LoadOptions());
  LoadOptions trainable;
  trainable.is_trainable = true;
  const auto loaded = load_model(*file, Group(), trainable).model;
  const auto expected = nn::describe_parameters(*loaded);
  const auto parameters = nn::describe_parameters(*deferred.model);
  ASSERT_EQ(parameters.size(), expected.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].name;
    EXPECT_EQ(name, expected[i].name);
    EXPECT_TRUE(parameters[i].tensor.requires_grad()) << name;
    EXPECT_TRUE(at::equal(deferred.values(name), expected[i].tensor)) << name;
  }
}

}  // namespace
}  // namespace weft::models
