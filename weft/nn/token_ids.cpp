#include "weft/nn/token_ids.h"

#include <ATen/ops/aminmax.h>

#include "weft/core/error.h"

namespace weft::nn {

void check_token_ids(const at::Tensor& ids, int64_t count, const char* where) {
  const bool is_index = ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt;
  core::check<core::ShapeError>(is_index, where, ": ids of dtype ",
                                c10::toString(ids.scalar_type()), ", expected int64 or int32");
  if (ids.numel() == 0 || ids.is_meta()) return;
  const auto [low, high] = at::aminmax(ids);
  const auto lowest = low.item<int64_t>(), highest = high.item<int64_t>();
  core::check<core::ShapeError>(lowest >= 0 && highest < count, where, ": id ",
                                lowest < 0 ? lowest : highest, ", expected 0 to ", count - 1,
                                "; use the tokenizer that belongs to this table");
}

}  // namespace weft::nn
