#include "weft/generate/share_prompt.h"

#include <ATen/ops/tensor.h>

namespace weft::generate {

std::vector<int64_t> share_tokens(const dist::Group& group, const std::vector<int64_t>& tokens) {
  at::Tensor count = at::tensor({static_cast<int64_t>(tokens.size())}, at::kLong);
  group.broadcast(count, 0);
  std::vector<int64_t> shared = tokens;
  shared.resize(static_cast<size_t>(count.item<int64_t>()));
  if (shared.empty()) return shared;
  at::Tensor ids = at::tensor(shared, at::kLong);
  group.broadcast(ids, 0);
  const auto* data = ids.const_data_ptr<int64_t>();
  return {data, data + ids.numel()};
}

}  // namespace weft::generate
