#pragma once

#include <ATen/core/Tensor.h>

#include "weft/nn/recurrent/gated_delta_net.h"

namespace weft::nn {

/// What gated_delta_net computes, of each head and one token after the other: a head's output has
/// the same bits whichever other heads and later tokens there are, with any number of threads. In
/// float32, without gradients, for `state` that is there. Throws ShapeError for sizes that don't
/// fit.
at::Tensor gated_delta_each(const DeltaHeads& heads, GatedDeltaParts& parts,
                            const DeltaProjections& in, const DeltaState& state);

}  // namespace weft::nn
