// How long a text is whose encoding would take minutes if its time were quadratic.
#pragma once

#include <cstddef>

namespace weft::text {

/// `num_bytes`, and a tenth of them where the address sanitizer makes a step some thirty times as
/// slow.
constexpr size_t long_text_size(size_t num_bytes) {
#ifdef __SANITIZE_ADDRESS__
  return num_bytes / 10;
#else
  return num_bytes;
#endif
}

}  // namespace weft::text
