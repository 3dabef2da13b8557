#include "bench/cuda/plain_multiply.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::bench {
namespace {

using cuda::kLanes;
using cuda::kUnit;

constexpr int kWarps = 4;

struct Call {
  cuda::Product product;
  const float* x;
  int32_t rows;
};

// Blocks along x for the rows of w, along y for runs of kRows rows of x.
template <int kRows>
__global__ void multiply_plainly(Call call) {
  const cuda::MatrixView& w = call.product.w;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const int32_t out =
      static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t first = static_cast<int32_t>(blockIdx.y) * kRows;
  if (out >= w.out) return;
  float sum[kRows] = {};
  for (int32_t unit = lane; unit < w.in / kUnit; unit += kLanes) {
    float v[kUnit], a[kUnit];
    cuda::unit_values(w, out, unit, v);
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = min(first + r, call.rows - 1);
      const float* x = call.x + row * w.in + unit * kUnit;
      cuda::read_unit<cuda::Dtype::kF32>(reinterpret_cast<const uint8_t*>(x), a);
      for (int i = 0; i < kUnit; ++i) sum[r] = fmaf(v[i], a[i], sum[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float all = cuda::warp_sum(sum[r]);
    if (lane == 0 && first + r < call.rows) {
      call.product.y[static_cast<int64_t>(first + r) * w.out + out] = all;
    }
  }
}

template <int kRows>
void launch_plain(const Call& call) {
  const dim3 blocks(cuda::blocks_of(call.product.w.out, kWarps), cuda::blocks_of(call.rows, kRows));
  cuda::launch(multiply_plainly<kRows>, blocks, kWarps * kLanes, call);
}

}  // namespace

void plain_multiply(const cuda::Product& product, const float* x, int64_t rows) {
  const Call call = {product, x, static_cast<int32_t>(rows)};
  if (rows == 1) return launch_plain<1>(call);
  if (rows <= 4) return launch_plain<4>(call);
  launch_plain<8>(call);
}

}  // namespace weft::bench
