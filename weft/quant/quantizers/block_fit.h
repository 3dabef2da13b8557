#pragma once

#include "weft/quant/quantizers/block_form.h"

namespace weft::quant {

/// Finds scales, offsets and codes of one block that leave little weighted squared error: each
/// group is fitted alone, the block's scale and offset follow from the groups' largest, the groups'
/// whole numbers are searched around the quotients, and least squares on the block's two numbers
/// take turns with that. `values` and `weights` are form.block long; weights are not negative.
/// Infinite scales mean that float16 can't hold them. Source of the idea of weighted fits: ggml's
/// K-quants (ggml-quants.c), by measure; the search is weft's.
FittedBlock fit_block(const BlockForm& form, const float* values, const float* weights);

/// Fits one group of a block of two levels anew, whose values have changed since: its whole
/// numbers, with the block's scale and offset as they are. `group` is its values and weights.
void refit_group(const BlockForm& form, int index, const WeightedGroup& group, FittedBlock& block);

}  // namespace weft::quant
