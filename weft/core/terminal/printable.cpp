#include "weft/core/terminal/printable.h"

#include <cstddef>
#include <cstdint>

#include "weft/core/error.h"

namespace weft::core {
namespace {

uint8_t byte_at(std::string_view text, size_t place) {
  return place < text.size() ? static_cast<uint8_t>(text[place]) : 0;
}

// Bytes of the well-formed sequence that a byte above ASCII begins; 0 if it begins none. Source:
// The Unicode Standard 15.0, table 3-7.
size_t sequence_length(std::string_view text, size_t place) {
  const uint8_t first = byte_at(text, place), second = byte_at(text, place + 1);
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0) return 0;
  const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte_at(text, place + i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// U+0080 to U+009F, which some terminals obey as they do ESC.
bool is_upper_control(std::string_view text, size_t place) {
  return byte_at(text, place) == 0xc2 && byte_at(text, place + 1) < 0xa0;
}

void append_escaped(uint8_t byte, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

std::string escaped(std::string_view text, bool keeps_lines) {
  std::string out;
  for (size_t place = 0; place < text.size();) {
    const uint8_t byte = byte_at(text, place);
    const bool is_plain = (byte >= 0x20 && byte < 0x7f) || (keeps_lines && byte == '\n');
    size_t length = is_plain ? 1 : sequence_length(text, place);
    if (length == 0 || is_upper_control(text, place)) {
      append_escaped(byte, out);
      length = 1;
    } else {
      out += text.substr(place, length);
    }
    place += length;
  }
  return out;
}

// The last place up to `place` where a character begins.
size_t boundary(std::string_view text, size_t place) {
  while (place > 0 && (byte_at(text, place) & 0xc0) == 0x80) --place;
  return place;
}

}  // namespace

std::string shortened(std::string_view text) {
  if (text.size() <= kMostShown) return std::string(text);
  constexpr size_t kPart = kMostShown / 2 - 50;
  const size_t begin = boundary(text, kPart), end = boundary(text, text.size() - kPart);
  return join(text.substr(0, begin), "… (", end - begin, " bytes left out) …", text.substr(end));
}

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

}  // namespace weft::core
