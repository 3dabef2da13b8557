#include "weft/nn/layers/token_ids.h"

#include <algorithm>
#include <span>

#include "weft/core/error.h"

namespace weft::nn {

void check_token_ids(const at::Tensor& ids, int64_t count, const char* where) {
  const bool is_index = ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt;
  core::check<core::ShapeError>(is_index, where, ": ids of dtype ",
                                c10::toString(ids.scalar_type()), ", expected int64 or int32");
  if (ids.numel() == 0 || ids.is_meta()) return;
  const at::Tensor all = ids.to(at::kLong).contiguous();
  const std::span values(all.const_data_ptr<int64_t>(), static_cast<size_t>(all.numel()));
  const auto [low, high] = std::ranges::minmax_element(values);
  const int64_t lowest = *low, highest = *high;
  core::check<core::ShapeError>(lowest >= 0 && highest < count, where, ": id ",
                                lowest < 0 ? lowest : highest, ", expected 0 to ", count - 1,
                                "; use the tokenizer that belongs to this table");
}

}  // namespace weft::nn
