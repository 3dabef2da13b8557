#include "weft/core/error.h"

#include <cstring>

namespace weft::core {

void fail_errno(const std::string& where, const std::string& what, int error_number) {
  fail<IoError>(where, ": ", what, ": ", std::strerror(error_number));
}

std::string quote(std::string_view text) {
  constexpr size_t kMaxBytes = 96;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + (text.size() > kMaxBytes ? "…'" : "'");
}

}  // namespace weft::core
