#include "weft/models/load/plain_latents.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/ops/tensor_checks.h"
#include "weft/io/load_tensor.h"

namespace weft::models {
namespace {

using testing::GgufTensor;
using testing::raw;

constexpr uint32_t kF32 = 0, kQ80 = 8;
constexpr int64_t kHeads = 2, kRank = 3, kKeys = 64;

// Q8_0: a scale of float16 before 32 numbers of 8 bits.
GgufTensor latent_blocks(const std::string& name) {
  GgufTensor tensor{name, {kKeys, kRank, kHeads}, kQ80, {}};
  for (int block = 0; block < kHeads * kRank * kKeys / 32; ++block) {
    tensor.data += raw(at::Half(0.01F * static_cast<float>(block + 1)));
    for (int i = 0; i < 32; ++i) tensor.data += static_cast<char>(7 * block + 5 * i - 90);
  }
  return tensor;
}

at::Tensor latent_values() {
  at::Tensor values = at::empty({kHeads * kRank * kKeys / 32, 32});
  for (int64_t block = 0; block < values.size(0); ++block) {
    const float scale = at::Half(0.01F * static_cast<float>(block + 1));
    for (int64_t i = 0; i < 32; ++i) {
      values[block][i] = scale * static_cast<float>(static_cast<int8_t>(7 * block + 5 * i - 90));
    }
  }
  return values.view({kHeads, kRank, kKeys});
}

TEST(PlainLatents, AreWhatTheBlocksSay) {
  const testing::TempDir dir;
  testing::GgufBuilder builder;
  const std::string plain_rows(4 * kKeys, '\1');
  builder.tensors = {latent_blocks("blk.0.attn_k_b.weight"),
                     latent_blocks("blk.0.attn_v.weight"),
                     {"blk.0.attn_v_b.weight", {kKeys}, kF32, plain_rows}};
  const auto file = io::TensorFile::open(dir.write("model.gguf", builder.build()));
  const auto plain = with_plain_latents(*file, LatentBytes::kRead);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->require("blk.0.attn_k_b.weight").dtype, io::Dtype::kF16);
  EXPECT_EQ(plain->require("blk.0.attn_v.weight").dtype, io::Dtype::kQ8_0);
  EXPECT_EQ(plain->tensors().size(), 3U);
  const at::Tensor keys = io::load_tensor(*plain, "blk.0.attn_k_b.weight", at::kFloat);
  EXPECT_TRUE(keys.equal(latent_values().to(at::kHalf).to(at::kFloat)));
  const at::Tensor values = io::load_tensor(*plain, "blk.0.attn_v_b.weight", at::kFloat);
  EXPECT_TRUE(values.equal(io::load_tensor(*file, "blk.0.attn_v_b.weight", at::kFloat)));
  const auto headers = with_plain_latents(*file, LatentBytes::kHeaders);
  EXPECT_EQ(headers->require("blk.0.attn_k_b.weight").shape,
            (std::vector<int64_t>{kHeads, kRank, kKeys}));
  EXPECT_EQ(with_plain_latents(*plain, LatentBytes::kRead), nullptr);
}

}  // namespace
}  // namespace weft::models
