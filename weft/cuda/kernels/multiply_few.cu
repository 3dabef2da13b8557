#include "weft/cuda/kernels/few_product.h"
#include "weft/cuda/kernels/few_rows.h"
#include "weft/cuda/kernels/launch.h"

namespace weft::cuda {
namespace {

using namespace few;

struct FewCall {
  Product products[kMostProducts];
  // Of each product.
  int32_t blocks[kMostProducts];
  const float* x;
  int32_t rows;
};

// Blocks along x for runs of kRows rows of x, along y for the rows of each w. What lies beyond the
// last row is computed as the last and not written.
template <class Span, int kRows>
__global__ void multiply_few(FewCall call) {
  int32_t block = static_cast<int32_t>(blockIdx.y), index = 0;
  while (block >= call.blocks[index]) block -= call.blocks[index++];
  const Product& product = call.products[index];
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t first_out = (block * kWarps + warp) * kOuts;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * kRows;
  __shared__ __align__(16) XChunk x[kBuffers<kRows> * kRows];
  Part<1, kRows> part;
  part.w[0] = product.w;
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) part.outs[o] = min(first_out + o, product.w.out - 1);
  WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
    part.x[r] = call.x + static_cast<int64_t>(min(first_row + r, call.rows - 1)) * product.w.in;
  }
  float sum[kOuts][kRows] = {};
  sum_up<Span>(part, x, sum);
  if (threadIdx.x % kLanes != 0) return;
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      const int32_t out = first_out + o, row = first_row + r;
      if (out < product.w.out && row < call.rows) {
        product.y[static_cast<int64_t>(row) * product.w.out + out] = sum[o][r];
      }
    }
  }
}

template <class Span, int kRows>
void launch_few(const FewCall& call, unsigned blocks) {
  launch(multiply_few<Span, kRows>, dim3(blocks_of(call.rows, kRows), blocks), kThreads, call);
}

}  // namespace

void multiply_few_rows(std::span<const Product> products, const float* x, int64_t rows) {
  FewCall call = {};
  unsigned blocks = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const unsigned own = blocks_of(products[i].w.out, kWarps * kOuts);
    call.products[i] = products[i];
    call.blocks[i] = static_cast<int32_t>(own);
    blocks += own;
  }
  call.x = x;
  call.rows = static_cast<int32_t>(rows);
  visit_span(products.front().w, [&]<class Span>(const Span& /*span*/) {
    if (rows == 1) return launch_few<Span, 1>(call, blocks);
    if (rows <= 4) return launch_few<Span, 4>(call, blocks);
    launch_few<Span, 8>(call, blocks);
  });
}

}  // namespace weft::cuda
