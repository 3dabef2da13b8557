#include "weft/models/load/weight_rules.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/models/rules_of.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

using test::model_data;
using test::rules_of;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

TEST(ShardInfoOfAModel, OneFileServesAnyNumberOfRanks) {
  for (const std::string& path :
       {model_data("mlx/plain_f32"), model_data("mlx/affine_b3_g64_f32"), test::smollm2_path()}) {
    const auto file = io::TensorFile::open(path);
    const io::ShardInfo info = shard_info(*file, rules_of(*file));
    const io::ShardInfo read = io::ShardInfo::parse(io::to_json(with_patterns(info)), "INFO");
    EXPECT_LT(read.params.size(), 40u) << path;
    for (const int64_t n : {1, 2, 3, 4}) {
      EXPECT_EQ(io::ShardPlan::make(*file, read, n, {}).hash(), make_plan(*file, n).params().hash())
          << path;
    }
  }
}

TEST(ShardInfoOfAModel, SaysHowTheFilesRowsBecomeTheModels) {
  const auto file = io::TensorFile::open(test::smollm2_path());
  const std::string json = io::to_json(with_patterns(shard_info(*file, rules_of(*file))));
  EXPECT_NE(json.find(R"("model.layers.*.self_attn.k_proj.weight":{"from":["blk.*.attn_k.weight"],)"
                      R"("steps":[["unpermute_rope",3],["shard_heads",0,9,3,"kv"]]})"),
            std::string::npos)
      << json;
}

// A copy of a fixture whose q, k and v are one tensor.
class FusedFile {
 public:
  explicit FusedFile(const std::string& fixture)
      : file_(io::TensorFile::open(model_data(fixture))) {
    std::vector<io::TensorToWrite> list;
    for (const io::TensorMeta& tensor : file_->tensors()) {
      const size_t q = tensor.name.find("q_proj");
      if (q != std::string::npos) {
        list.push_back(fused(tensor, q));
      } else if (tensor.name.find("k_proj") == std::string::npos &&
                 tensor.name.find("v_proj") == std::string::npos) {
        list.push_back({tensor.name, tensor.dtype, tensor.shape, bytes(tensor)});
      }
    }
    io::write_safetensors(dir_.at("model.safetensors"), list, {});
    const TempDir& dir = dir_;
    dir.write("config.json",
              std::string(core::read_text_file(model_data(fixture + "/config.json"), 1 << 20)));
    fused_ = io::TensorFile::open(dir_.path());
  }

  const io::TensorFile& original() const { return *file_; }
  const io::TensorFile& fused() const { return *fused_; }

 private:
  std::span<const std::byte> bytes(const io::TensorMeta& tensor) {
    auto& stored = kept_.emplace_back(std::make_unique<std::vector<std::byte>>(tensor.num_bytes));
    file_->read_at(tensor.file, tensor.offset, *stored);
    return *stored;
  }
  io::TensorToWrite fused(const io::TensorMeta& q_tensor, size_t at) {
    auto all = std::make_unique<std::vector<std::byte>>();
    std::vector<int64_t> shape = q_tensor.shape;
    shape[0] = 0;
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      std::string name = q_tensor.name;
      const io::TensorMeta& tensor = file_->require(name.replace(at, 6, part));
      const auto data = bytes(tensor);
      all->insert(all->end(), data.begin(), data.end());
      shape[0] += tensor.shape[0];
    }
    std::string name = q_tensor.name;
    name.replace(at, 6, "qkv_proj");
    kept_.push_back(std::move(all));
    return {name, q_tensor.dtype, shape, *kept_.back()};
  }

  TempDir dir_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
  std::shared_ptr<const io::TensorFile> file_;
  std::shared_ptr<const io::TensorFile> fused_;
};

// Rules that take q, k and v out of the fused tensor's `suffix`.
std::string fused_rules(const std::string& suffix, const std::string& first_step) {
  std::string text;
  for (const std::string part : {"q", "k", "v"}) {
    const std::string base = "model.layers.*.self_attn.";
    text += core::join(text.empty() ? "" : ",", R"(")", base, part, "_proj.", suffix,
                       R"(":{"from":[")", base, "qkv_proj.", suffix, R"("],"steps":[)", first_step,
                       R"(["uncombine_qkv",")", part, R"(",4,2],["shard_heads",0,4,2,")",
                       part == "q" ? "q" : "kv", R"("]]})");
  }
  return text;
}

io::ShardInfo info_of(const std::string& params) {
  return io::ShardInfo::parse(
      core::join(R"({"format":"weft.shard_info","version":1,"params":{)", params, "}}"), "INFO");
}

void expect_same_shards(const FusedFile& file, const io::ShardInfo& info) {
  LoadOptions options;
  options.shard_info = &info;
  for (const int64_t n : {1, 2, 3, 4}) {
    const LoadPlan plan = make_plan(file.fused(), n, options);
    const LoadPlan original = make_plan(file.original(), n);
    for (int64_t rank = 0; rank < n; ++rank) {
      for (const char* part : {"q", "k", "v", "o"}) {
        const std::string base = core::join("model.layers.1.self_attn.", part, "_proj");
        const auto got = WeightReader(file.fused(), plan, rank).linear(base, false);
        const auto expected = WeightReader(file.original(), original, rank).linear(base, false);
        EXPECT_TRUE(at::equal(got->dense_weight(), expected->dense_weight()))
            << base << ", rank " << rank << " of " << n;
        EXPECT_EQ(got->weight_bytes(), expected->weight_bytes());
      }
    }
  }
}

TEST(UsersShardInfo, ReordersWhatTheModelDoesNotKnow) {
  expect_same_shards(FusedFile("mlx/plain_f32"), info_of(fused_rules("weight", "")));
  expect_same_shards(FusedFile("mlx/affine_b3_g64_f32"),
                     info_of(fused_rules("weight", R"(["as_bits",3],)") + "," +
                             fused_rules("scales", "") + "," + fused_rules("biases", "")));
}

// Halves floats: something that no view can say.
class Halve : public io::EagerFunction {
 public:
  io::TensorType output_type(const io::TensorType& input,
                             std::span<const io::Argument>) const override {
    return input;
  }
  void run(std::span<const std::byte> input, const io::TensorType&, std::span<const io::Argument>,
           std::span<std::byte> output) const override {
    const auto* from = reinterpret_cast<const float*>(input.data());
    auto* to = reinterpret_cast<float*>(output.data());
    for (size_t i = 0; i < input.size() / sizeof(float); ++i) to[i] = from[i] / 2;
  }
};

TEST(UsersShardInfo, MayCallAProgramsOwnFunctions) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  const io::ShardInfo info =
      info_of(R"("model.layers.0.mlp.up_proj.weight":[["user.halve"],["shard",0]],)"
              R"("model.layers.*.input_layernorm.weight":[["user.halve"]])");
  LoadOptions options;
  options.shard_info = &info;
  options.functions.add("user.halve", std::make_shared<Halve>());
  for (const int64_t n : {1, 2, 3}) {
    const LoadPlan plan = make_plan(*file, n, options), original = make_plan(*file, n);
    const WeightReader reader(*file, plan, n - 1), whole(*file, original, n - 1);
    const std::string base = "model.layers.0.mlp.up_proj";
    EXPECT_TRUE(at::equal(reader.linear(base, false)->dense_weight() * 2,
                          whole.linear(base, false)->dense_weight()));
    EXPECT_TRUE(at::equal(reader.vector("model.layers.1.input_layernorm.weight") * 2,
                          whole.vector("model.layers.1.input_layernorm.weight")));
  }
}

TEST(UsersShardInfo, MustGiveWhatTheModelNeeds) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  const auto error = [&](const std::string& params) {
    const io::ShardInfo info = info_of(params);
    LoadOptions options;
    options.shard_info = &info;
    return replaced(error_text([&] { make_plan(*file, 2, options); }), file->path(), "FILE");
  };
  EXPECT_EQ(error(R"("model.layers.0.mlp.up_proj.weight":[])"),
            "ShapeError: INFO: parameter 'model.layers.0.mlp.up_proj.weight': rank 0 of 2 gets F32 "
            "[256, 128], expected [128, 128]; the model cuts it by ffn");
  EXPECT_EQ(error(R"("model.norm.weight":[["shard",0]])"),
            "ShapeError: INFO: parameter 'model.norm.weight': rank 0 of 2 gets F32 [64], expected "
            "[128]; the model cuts it not at all");
  EXPECT_EQ(error(R"("x.weight":{"from":["model.norm.weight"],"steps":[]})"),
            "FormatError: FILE with INFO: 1 tensors that the model does not use, e.g. [x.weight]; "
            "the file holds another model");
  EXPECT_EQ(error(R"("model.norm.weight":[["no.such"]])")
                .find("ConfigError: INFO: parameter "
                      "'model.norm.weight': step 1 "
                      "'no.such': unknown function"),
            0u);
}

}  // namespace
}  // namespace weft::models
