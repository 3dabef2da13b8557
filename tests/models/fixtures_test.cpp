#include <gtest/gtest.h>

#include "tests/models/model_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/quantized_linear.h"

// Matrices that MLX has quantized, against what it dequantizes them to.

namespace weft::models {
namespace {

using test::model_data;

const std::vector<std::string> kQuantizedFixtures = {"affine_b3_g64_f32",  "affine_b4_g128_f32",
                                                     "affine_b4_g64_bf16", "affine_b4_g64_f32",
                                                     "affine_b8_g32_f32",  "mixed_override_f32"};
const std::vector<std::string> kMatrices = {"model.layers.0.self_attn.o_proj",
                                            "model.layers.0.mlp.down_proj",
                                            "model.layers.1.mlp.gate_proj"};

at::Tensor taken(const at::Tensor& whole, int64_t dim, const std::vector<shard::Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : ranges) {
    parts.push_back(whole.narrow(dim, range.start, range.length));
  }
  return at::cat(parts, dim);
}

TEST(MlxFixtures, ShardsDequantizeToSlicesOfTheReference) {
  for (const std::string& name : kQuantizedFixtures) {
    const auto file = io::TensorFile::open(model_data("mlx/" + name));
    const auto reference = io::TensorFile::open(model_data("mlx/" + name + ".ref.safetensors"));
    for (const int64_t n : {1, 2, 3, 4}) {
      const LoadPlan plan = make_plan(*file, n);
      for (const std::string& base : kMatrices) {
        const at::Tensor whole = io::load_tensor(*reference, "deq/" + base, at::kFloat);
        for (int64_t rank = 0; rank < n; ++rank) {
          const io::MatrixSlice slice = plan.slice(plan.require(base + ".weight"), rank);
          const at::Tensor expected = taken(taken(whole, 0, slice.rows), 1, slice.columns);
          const auto linear = WeightReader(*file, plan, rank).linear(base, false);
          const at::Tensor dense = linear->dense_weight().to(at::kFloat);
          ASSERT_EQ(dense.sizes(), expected.sizes()) << name << " " << base;
          EXPECT_LE((dense - expected).abs().max().item<double>(), 1e-7)
              << name << " " << base << ", rank " << rank << " of " << n;
        }
      }
    }
  }
}

TEST(MlxFixtures, ShardsOfPackedTensorsAreSlicesBitForBit) {
  for (const std::string& name : kQuantizedFixtures) {
    const auto file = io::TensorFile::open(model_data("mlx/" + name));
    const LoadPlan whole_plan = make_plan(*file, 1);
    for (const int64_t n : {2, 3, 4}) {
      const LoadPlan plan = make_plan(*file, n);
      for (const std::string& base : kMatrices) {
        const auto whole = std::dynamic_pointer_cast<nn::QuantizedLinearImpl>(
            WeightReader(*file, whole_plan, 0).linear(base, false));
        for (int64_t rank = 0; rank < n; ++rank) {
          const auto shard = std::dynamic_pointer_cast<nn::QuantizedLinearImpl>(
              WeightReader(*file, plan, rank).linear(base, false));
          const io::MatrixSlice slice = plan.slice(plan.require(base + ".weight"), rank);
          quant::QuantizedMatrix expected =
              quant::select(quant::select(whole->weight, 0, slice.rows), 1, slice.columns);
          const auto parts = quant::parts_of(expected), got = quant::parts_of(shard->weight);
          ASSERT_EQ(parts.size(), got.size());
          for (size_t i = 0; i < parts.size(); ++i) {
            EXPECT_TRUE(at::equal(*got[i].tensor, *parts[i].tensor))
                << name << " " << base << " " << parts[i].name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::models
