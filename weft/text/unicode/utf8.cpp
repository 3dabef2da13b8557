#include "weft/text/unicode/utf8.h"

#include <cstdint>

namespace weft::text {
namespace {

struct Lead {
  size_t size = 0;
  // Bounds of the second byte; they keep out overlong forms, surrogates and code points > 10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {first, 1, true, false};
  Lead lead = lead_of(first);
  if (lead.size == 0) return {0xFFFD, 1, false, false};
  char32_t code = first & (0x7F >> lead.size);
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {0xFFFD, i, false, true};
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (byte < lead.low || byte > lead.high) return {0xFFFD, i, false, false};
    code = code << 6 | (byte & 0x3F);
    lead.low = 0x80;
    lead.high = 0xBF;
  }
  return {code, lead.size, true, false};
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | code >> 6), tail(0)};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
  }
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.valid) {
      out += bytes.substr(0, step.size);
    } else {
      append_utf8(out, step.code);
    }
    bytes.remove_prefix(step.size);
  }
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (!step.valid) return false;
    bytes.remove_prefix(step.size);
  }
  return true;
}

size_t utf8_length(std::string_view text) {
  size_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return count;
}

}  // namespace weft::text
