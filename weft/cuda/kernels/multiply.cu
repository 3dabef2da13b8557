#include <algorithm>

#include "weft/core/error.h"
#include "weft/cuda/kernels/arithmetic.h"
#include "weft/cuda/kernels/few_rows.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/many_rows.h"
#include "weft/cuda/kernels/multiply.h"

namespace weft::cuda {
namespace {

struct RowsCall {
  MatrixView w;
  const int64_t* indices;
  float* y;
};

// A block for each index.
__global__ void read_each_row(RowsCall call) {
  const int64_t index = call.indices[blockIdx.x];
  const int32_t units = call.w.in / kUnit;
  float* y = call.y + static_cast<int64_t>(blockIdx.x) * call.w.in;
  for (int32_t unit = static_cast<int32_t>(threadIdx.x); unit < units;
       unit += static_cast<int32_t>(blockDim.x)) {
    float v[kUnit] = {};
    if (index >= 0 && index < call.w.out) {
      unit_values(call.w, static_cast<int32_t>(index), unit, v);
    }
    for (int i = 0; i < kUnit; ++i) y[unit * kUnit + i] = v[i];
  }
}

bool are_alike(const MatrixView& a, const MatrixView& b) {
  return a.bits == b.bits && a.numbers == b.numbers && a.units_per_group == b.units_per_group;
}

}  // namespace

void multiply(std::span<const Product> products, const float* x, int64_t rows) {
  const bool fits = !products.empty() && products.size() <= kMostProducts &&
                    std::all_of(products.begin(), products.end(), [&](const Product& each) {
                      return each.w.in == products.front().w.in;
                    });
  core::check<core::ShapeError>(fits, "cuda.multiply: ", products.size(),
                                " products, expected 1 to ", kMostProducts,
                                " with one number of columns");
  if (rows == 0) return;
  // A kernel is of one form of matrix.
  while (!products.empty()) {
    size_t count = 1;
    while (count < products.size() && are_alike(products[0].w, products[count].w)) ++count;
    if (rows <= kFewRows) {
      multiply_few_rows(products.first(count), x, rows);
    } else {
      multiply_many_rows(products.first(count), x, rows);
    }
    products = products.subspan(count);
  }
}

void read_rows(const MatrixView& w, const int64_t* indices, int64_t count, float* y) {
  constexpr unsigned kThreads = 128;
  if (count == 0) return;
  launch(read_each_row, dim3(static_cast<unsigned>(count)), kThreads, RowsCall{w, indices, y});
}

}  // namespace weft::cuda
