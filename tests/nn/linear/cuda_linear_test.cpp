// Weights on the GPU against the same ones on the processor.
#include "weft/nn/linear/cuda_linear.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "tests/support/needs_cuda.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/nn/parallel/shard_linear.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::seeded;
using testing::error_text;

class CudaLinearOnGpu : public test::NeedsCuda {};

at::Tensor weight_of(int64_t out, int64_t in) { return seeded({out, in}, 1, at::kFloat); }

// Products of one row, of few, and of more than a tile of them.
void expect_same_on_cuda(LinearLike& linear, const std::string& what) {
  const c10::InferenceMode inference;
  const auto moved = on_cuda(linear);
  for (const int64_t rows : {1, 3, 7, 16, 17, 70}) {
    const at::Tensor x = seeded({rows, linear.in_features()}, 2, at::kFloat);
    expect_close(moved->forward(x), linear.forward(x), core::join(what, ", ", rows, " rows"), 1e-5);
  }
  EXPECT_TRUE(at::equal(moved->dense_weight(), linear.dense_weight().to(at::kFloat))) << what;
}

TEST_F(CudaLinearOnGpu, CodesOfAllBitsMultiplyAsOnTheProcessor) {
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const int64_t group : {16, 32, 96}) {
      const auto type = group == 16 ? at::kFloat : group == 32 ? at::kHalf : at::kBFloat16;
      QuantizedLinearImpl linear(quant::quantize_affine(weight_of(70, 288), bits, group, type));
      expect_same_on_cuda(linear, core::join(bits, " bits in groups of ", group));
    }
  }
}

TEST_F(CudaLinearOnGpu, CodesWithoutOffsetsMultiplyAsOnTheProcessor) {
  auto w = quant::quantize_affine(weight_of(70, 288), 4, 32, at::kHalf);
  w.offsets = at::Tensor();
  QuantizedLinearImpl linear(w);
  expect_same_on_cuda(linear, "symmetric");
}

TEST_F(CudaLinearOnGpu, PlainNumbersMultiplyAsOnTheProcessor) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor w = weight_of(70, 104).to(type);
    DenseLinearImpl stored(w), linear(w.to(at::kFloat), seeded({70}, 3, at::kFloat));
    EXPECT_EQ(on_cuda(stored)->weight_bytes(), static_cast<int64_t>(w.nbytes()));
    expect_same_on_cuda(linear, c10::toString(type));
  }
}

// More columns than kernels take at a time, and more tiles than one kind is for.
TEST_F(CudaLinearOnGpu, WideAndTallMatricesMultiplyAsOnTheProcessor) {
  for (const int64_t bits : {4, 6}) {
    for (const int64_t group : {16, 32}) {
      QuantizedLinearImpl linear(
          quant::quantize_affine(weight_of(21, 2208), bits, group, at::kHalf));
      expect_same_on_cuda(linear, core::join(bits, " bits, wide, in groups of ", group));
    }
  }
  DenseLinearImpl wide(weight_of(21, 2136)), tall(weight_of(16300, 24));
  expect_same_on_cuda(wide, "wide");
  expect_same_on_cuda(tall, "tall");
}

TEST_F(CudaLinearOnGpu, OtherFormsBecomePlainNumbers) {
  quant::Scheme scheme;
  scheme.mode = quant::Mode::kMxfp4;
  scheme.bits = 4;
  scheme.group_size = 32;
  QuantizedLinearImpl linear(quant::quantize(weight_of(16, 64), scheme));
  expect_same_on_cuda(linear, "mxfp4");
  EXPECT_EQ(on_cuda(linear)->weight_bytes(), 16 * 64 * 2);
}

TEST_F(CudaLinearOnGpu, FewRowsHaveTheBitsOfOne) {
  const c10::InferenceMode inference;
  for (const auto& linear : std::initializer_list<std::shared_ptr<LinearLike>>{
           std::make_shared<QuantizedLinearImpl>(
               quant::quantize_affine(weight_of(9, 288), 4, 32, at::kHalf)),
           std::make_shared<QuantizedLinearImpl>(
               quant::quantize_affine(weight_of(18, 1312), 6, 16, at::kHalf)),
           std::make_shared<DenseLinearImpl>(weight_of(9, 1288).to(at::kBFloat16))}) {
    const auto moved = on_cuda(*linear);
    const at::Tensor x = seeded({16, linear->in_features()}, 2, at::kFloat);
    for (const int64_t rows : {2, 4, 5, 16}) {
      const at::Tensor y = moved->forward(x.narrow(0, 0, rows));
      for (int64_t row = 0; row < rows; ++row) {
        EXPECT_TRUE(at::equal(y[row], moved->forward(x[row]))) << row << " of " << rows;
      }
    }
  }
}

TEST_F(CudaLinearOnGpu, RowsAreReadByIndex) {
  QuantizedLinearImpl linear(quant::quantize_affine(weight_of(9, 64), 4, 32, at::kHalf));
  const auto moved = on_cuda(linear);
  const at::Tensor indices = at::tensor({8, 0, 0, 5}, at::kLong).view({2, 2});
  EXPECT_TRUE(at::equal(moved->rows(indices), linear.rows(indices)));
  EXPECT_EQ(error_text([&] { moved->rows(at::tensor({9}, at::kLong)); }),
            "ShapeError: nn.CudaLinear.rows: an index is outside of 0 to 8");
}

TEST_F(CudaLinearOnGpu, ColumnsThatAreNoWholeUnitsAreAnError) {
  const DenseLinearImpl linear(weight_of(4, 12));
  EXPECT_EQ(
      error_text([&] { on_cuda(linear); }),
      "ShapeError: cuda.Matrix: [4, 12], expected columns in multiples of 8 on each rank; use "
      "another number of ranks or --device cpu");
}

TEST_F(CudaLinearOnGpu, IsNeitherTrainedNorCut) {
  const DenseLinearImpl linear(weight_of(4, 16));
  const auto moved = on_cuda(linear);
  EXPECT_EQ(error_text([&] {
              moved->forward(at::ones({1, 16}).requires_grad_(true));
            }),
            "ConfigError: nn.CudaLinear: a gradient: expected a weight of the CPU; do it before "
            "nn::on_cuda");
  EXPECT_EQ(error_text([&] { shard_linear(*moved, ShardKind::kShardedToAll, dist::Group()); }),
            "ConfigError: nn.shard_linear: linear [4, 16], input features: a "
            "weft::nn::CudaLinearImpl can't be cut or joined, expected a weight in the file's "
            "order; do it before nn::put_in_panels or nn::on_cuda");
}

}  // namespace
}  // namespace weft::nn
