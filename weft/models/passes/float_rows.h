#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#include "weft/core/memory/scratch.h"
#include "weft/nn/kernels/select.h"
#include "weft/nn/layers/activation.h"
#include "weft/quant/view.h"

namespace weft::models {

/// Floats in rows, in memory that the next pass uses again.
class FloatRows {
 public:
  /// Makes room; the numbers may be any. Throws IoError where memory is full.
  float* of(int64_t rows, int64_t stride) {
    stride_ = stride;
    return floats_.make_room(rows * stride);
  }
  float* row(int64_t index) const { return floats_.data() + index * stride_; }
  int64_t stride() const { return stride_; }

 private:
  core::Scratch<float> floats_;
  int64_t stride_ = 0;
};

/// Runs `use`(row) for all rows, each the work of reading `row_work` floats; few rows are not worth
/// another thread.
template <class Use>
void for_rows(int64_t rows, int64_t row_work, Use&& use) {
  at::parallel_for(0, rows, quant::rows_per_thread(4 * row_work), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) use(row);
  });
}

/// What `gating` makes of a row of gates and one of ups, to y, which may be one of them.
inline void gate_row(const nn::Gating& gating, const float* gate, const float* up, float* y,
                     int64_t count) {
  const nn::kernels::ElementKernel& kernel = nn::kernels::active_kernel().float32;
  switch (gating.activation) {
    case nn::Activation::kSilu:
      return kernel.swiglu(gate, up, y, count);
    case nn::Activation::kGeluTanh:
      return kernel.geglu(gate, up, y, count);
    case nn::Activation::kClamped:
      return kernel.clamped_swiglu(gate, up, static_cast<float>(gating.limit), y, count);
  }
}

}  // namespace weft::models
