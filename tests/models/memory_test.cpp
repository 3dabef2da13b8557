#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/core/temp_dir.h"
#include "tests/io/safetensors_builder.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using nlohmann::json;
using testing::TempDir;

constexpr int64_t kWidth = 1024, kFfn = 4096, kVocab = 32000, kLayers = 28;

// A Llama of 0.5 billion zeros: a sparse file of 2 GB in float32, 1 GB in bfloat16.
class SparseModel {
 public:
  explicit SparseModel(const char* dtype, int64_t item_bytes) : dtype_(dtype), item_(item_bytes) {
    const json config = {{"model_type", "llama"},         {"hidden_size", kWidth},
                         {"num_hidden_layers", kLayers},  {"num_attention_heads", 16},
                         {"num_key_value_heads", 16},     {"intermediate_size", kFfn},
                         {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5},
                         {"vocab_size", kVocab},          {"tie_word_embeddings", true}};
    dir_.write("config.json", config.dump());
    add("model.embed_tokens.weight", {kVocab, kWidth});
    for (int64_t layer = 0; layer < kLayers; ++layer) add_layer(layer);
    add("model.norm.weight", {kWidth});
    const std::string head = testing::safetensors_bytes(header_.dump());
    dir_.write_sparse("model.safetensors", head, head.size() + static_cast<uint64_t>(end_));
  }

  const std::string& path() const { return dir_.path(); }
  int64_t file_bytes() const { return end_; }

 private:
  void add(const std::string& name, const std::vector<int64_t>& shape) {
    int64_t bytes = item_;
    for (const int64_t size : shape) bytes *= size;
    header_[name] = {{"dtype", dtype_}, {"shape", shape}, {"data_offsets", {end_, end_ + bytes}}};
    end_ += bytes;
  }
  void add_layer(int64_t layer) {
    const std::string base = core::join("model.layers.", layer, ".");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(core::join(base, "self_attn.", name, ".weight"), {kWidth, kWidth});
    }
    add(base + "mlp.gate_proj.weight", {kFfn, kWidth});
    add(base + "mlp.up_proj.weight", {kFfn, kWidth});
    add(base + "mlp.down_proj.weight", {kWidth, kFfn});
    add(base + "input_layernorm.weight", {kWidth});
    add(base + "post_attention_layernorm.weight", {kWidth});
  }

  TempDir dir_;
  const char* dtype_;
  int64_t item_;
  int64_t end_ = 0;
  json header_;
};

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

int64_t expect_little_beside_the_shard(const SparseModel& sparse, const Group& group,
                                       const LoadOptions& options = {}) {
  constexpr int64_t kAllowance = int64_t{64} << 20;
  const auto file = io::TensorFile::open(sparse.path());
  // What libtorch takes once, for its threads and kernels, is not the load's.
  at::ones({1 << 20}, at::kBFloat16).to(at::kFloat);
  const int64_t before = resident_bytes();
  const LoadedModel loaded = load_model(*file, group, options);
  EXPECT_LE(peak_bytes() - before, loaded.model->weight_bytes() + kAllowance)
      << sparse.file_bytes() << " bytes, rank " << group.rank();
  EXPECT_LE(loaded.stats.peak_host_bytes, static_cast<uint64_t>(kAllowance));
  return loaded.model->weight_bytes();
}

TEST(LoadMemory, ARankHoldsItsShardAndLittleMore) {
  const SparseModel plain("F32", 4);
  ASSERT_GE(plain.file_bytes(), 2'000'000'000);
  test::run_ranks(
      2, [&](dist::World& world) { expect_little_beside_the_shard(plain, world.group()); });
}

TEST(LoadMemory, WhatIsConvertedIsReadInPieces) {
  const SparseModel halves("BF16", 2);
  test::run_ranks(
      2, [&](dist::World& world) { expect_little_beside_the_shard(halves, world.group()); });
}

TEST(LoadMemory, HalvesAsStoredTakeTheFilesBytes) {
  const SparseModel halves("BF16", 2);
  test::run_ranks(2, [&](dist::World& world) {
    LoadOptions options;
    options.dtype = at::ScalarType::Undefined;
    // Norms are kept whole, and in float32.
    const int64_t norm_bytes = (2 * kLayers + 1) * kWidth * 4;
    EXPECT_LE(expect_little_beside_the_shard(halves, world.group(), options),
              halves.file_bytes() / 2 + norm_bytes);
  });
}

}  // namespace
}  // namespace weft::models
