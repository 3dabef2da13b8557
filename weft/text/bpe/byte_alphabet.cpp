#include "weft/text/bpe/byte_alphabet.h"

#include <array>

#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

bool is_printable(uint8_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

std::array<char32_t, 256> make_letters() {
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    letters[byte] = is_printable(static_cast<uint8_t>(byte)) ? static_cast<char32_t>(byte) : next++;
  }
  return letters;
}

const std::array<char32_t, 256>& letters() {
  static const std::array<char32_t, 256> table = make_letters();
  return table;
}

// The highest letter is U+0143.
std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[letters()[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

}  // namespace

char32_t byte_to_letter(uint8_t byte) { return letters()[byte]; }

std::optional<std::string> letters_to_bytes(std::string_view token) {
  static const std::array<int16_t, 0x144> bytes = make_bytes();
  std::string out;
  while (!token.empty()) {
    const Utf8Step step = utf8_step(token);
    if (!step.valid || step.code >= bytes.size() || bytes[step.code] < 0) return std::nullopt;
    out += static_cast<char>(bytes[step.code]);
    token.remove_prefix(step.size);
  }
  return out;
}

}  // namespace weft::text
