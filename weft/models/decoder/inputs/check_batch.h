#pragma once

#include "weft/models/model.h"

namespace weft::models {

/// Throws ShapeError unless a batch's documents and positions, where it has them, are int64 of its
/// tokens' shape.
void check_batch(const TokenBatch& batch);

}  // namespace weft::models
