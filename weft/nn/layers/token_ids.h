#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::nn {

/// Throws ShapeError unless every id (int64 or int32, any shape) is in 0…count-1; `where` begins
/// the message. Ids are the same on all ranks, so all fail alike. On a GPU it waits for the ids.
void check_token_ids(const at::Tensor& ids, int64_t count, const char* where);

}  // namespace weft::nn
