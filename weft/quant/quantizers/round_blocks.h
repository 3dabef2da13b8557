#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "weft/quant/quantizers/block_form.h"

/// All blocks of a matrix, whatever becomes of them.
namespace weft::quant {

/// Sees a block of a row; called for several rows at once.
using TakeBlock = std::function<void(int64_t row, int64_t block, const FittedBlock& fitted)>;

/// Fits each block alone. `values` and `weights` (of the squares of errors) are float32 [out, in],
/// contiguous, of whole blocks. False if the form's type can't hold some scale or offset.
bool fit_blocks(const BlockForm& form, const at::Tensor& values, const at::Tensor& weights,
                const TakeBlock& take);

/// The same with feedback (feedback.h): columns are corrected before they are rounded. `factor` is
/// float32 [in, in].
bool fit_blocks_with_feedback(const BlockForm& form, const at::Tensor& values,
                              const at::Tensor& factor, const TakeBlock& take);

}  // namespace weft::quant
