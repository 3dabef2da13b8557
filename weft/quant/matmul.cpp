#include "weft/quant/matmul.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/kernels/select.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::Inputs;
using kernels::Kernel;
using kernels::Outputs;
using kernels::Weights;

/// Keeps a tile within the second level cache of common machines.
constexpr int64_t kTileBytes = 256 * 1024;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void check_input(const at::Tensor& x, int64_t in, const char* where) {
  check<ShapeError>(x.defined() && x.dim() > 0 && x.size(-1) == in, where,
                    ": x, expected last dimension ", in, ", got ",
                    x.defined() ? core::list_text(x.sizes()) : "none",
                    "; check which shard of the weight this is");
  const auto dtype = x.scalar_type();
  check<ShapeError>(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, where,
                    ": x, expected float32, float16 or bfloat16, got ", c10::toString(dtype),
                    "; convert it");
}

/// x in the kernel's order of columns, padded with zeros.
class OrderedInputs {
 public:
  OrderedInputs(const Kernel& kernel, const Weights& w, const float* x, int64_t tokens)
      : stride_(round_up(w.in_features, kernels::kPadding)),
        tokens_(tokens),
        data_(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(tokens * stride_))) {
    at::parallel_for(0, tokens, 4 * rows_per_thread(stride_), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        float* row = data_.get() + t * stride_;
        kernel.order(w, x + t * w.in_features, row);
        std::fill(row + w.in_features, row + stride_, 0.0F);
      }
    });
  }

  Inputs view() const { return {data_.get(), stride_, tokens_}; }

 private:
  int64_t stride_;
  int64_t tokens_;
  std::unique_ptr<float[]> data_;
};

/// Few tokens: rows are unpacked in registers, one pass over the weights for a few tokens.
void multiply_fused(const Kernel& kernel, const Weights& w, int64_t out, const Inputs& x,
                    const Outputs& y) {
  const int64_t blocks = (out + kernels::kMaxRows - 1) / kernels::kMaxRows;
  const int64_t grain = rows_per_thread(kernels::kMaxRows * w.in_features * x.tokens);
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> scratch(static_cast<size_t>(kernels::scratch_bytes(w)));
    const int64_t first = begin * kernels::kMaxRows;
    const int64_t last = std::min(out, end * kernels::kMaxRows);
    kernel.multiply(w, {first, last - first}, x, y, scratch.data());
  });
}

/// Many tokens: tiles of rows become float32 in the cache and are multiplied there.
void multiply_tiled(const Kernel& kernel, const Weights& w, int64_t out, const Inputs& x,
                    const Outputs& y) {
  const int64_t cached = kTileBytes / (x.stride * static_cast<int64_t>(sizeof(float)));
  const int64_t share = (out + at::get_num_threads() - 1) / at::get_num_threads();
  const int64_t rows = round_up(std::max<int64_t>(1, std::min(cached, share)), kernels::kMaxRows);
  const int64_t grain = rows_per_thread(rows * x.stride * x.tokens);
  at::parallel_for(0, (out + rows - 1) / rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> scratch(static_cast<size_t>(kernels::scratch_bytes(w)));
    const auto values =
        std::make_unique_for_overwrite<float[]>(static_cast<size_t>(rows * x.stride));
    for (int64_t first = begin * rows; first < std::min(out, end * rows); first += rows) {
      const kernels::Tile tile{values.get(), x.stride, {first, std::min(rows, out - first)}};
      kernel.fill(w, tile, scratch.data());
      kernel.multiply_tile(tile, x, y);
    }
  });
}

at::Tensor multiplied(const Kernel& kernel, const at::Tensor& x, const Weights& w, int64_t out) {
  const int64_t in = w.in_features;
  auto shape = x.sizes().vec();
  shape.back() = out;
  const at::Tensor y = at::empty(shape, at::kFloat);
  const int64_t tokens = x.numel() / in;
  const Outputs outputs{y.mutable_data_ptr<float>(), out};
  const at::Tensor wide = x.detach().to(at::kFloat).contiguous();
  const OrderedInputs inputs(kernel, w, wide.const_data_ptr<float>(), tokens);
  if (tokens <= kernel.fused_tokens && kernel.fuses(w)) {
    multiply_fused(kernel, w, out, inputs.view(), outputs);
  } else {
    multiply_tiled(kernel, w, out, inputs.view(), outputs);
  }
  return y.to(x.scalar_type());
}

}  // namespace

at::Tensor matmul_on(const Kernel& kernel, const at::Tensor& x, const AffineTensor& w) {
  constexpr const char* kWhere = "quant.affine_matmul";
  check_affine(w, kWhere);
  check_input(x, w.in_features(), kWhere);
  return multiplied(kernel, x, view_of(w), w.out_features());
}

at::Tensor matmul_on(const Kernel& kernel, const at::Tensor& x, const MicroscaledTensor& w) {
  constexpr const char* kWhere = "quant.microscaled_matmul";
  check_microscaled(w, kWhere);
  check_input(x, w.in_features(), kWhere);
  return multiplied(kernel, x, view_of(w), w.out_features());
}

at::Tensor affine_matmul(const at::Tensor& x, const AffineTensor& w) {
  return matmul_on(kernels::active_kernel(), x, w);
}

at::Tensor microscaled_matmul(const at::Tensor& x, const MicroscaledTensor& w) {
  return matmul_on(kernels::active_kernel(), x, w);
}

}  // namespace weft::quant
