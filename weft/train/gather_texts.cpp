#include "weft/train/gather_texts.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace weft::train {

std::vector<std::string> gather_texts(const dist::Group& group, const std::string& text) {
  if (group.size() == 1) return {text};
  // Each with its ending NUL, so that no rank sends nothing.
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size()) + 1}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), text.c_str(), text.size() + 1);
  const at::Tensor all = group.all_gather(bytes, 0).contiguous();
  const char* next = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  std::vector<std::string> texts;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    texts.emplace_back(next);
    next += texts.back().size() + 1;
  }
  return texts;
}

}  // namespace weft::train
