#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// The printable character that byte-level vocabularies write for `byte`: itself where it is
/// printable Latin-1, else U+0100 and up in order (GPT-2's `bytes_to_unicode`).
char32_t byte_to_letter(uint8_t byte);

/// The bytes that `token`, spelled in those characters, stands for, or nothing when some character
/// is none of them.
std::optional<std::string> letters_to_bytes(std::string_view token);

}  // namespace weft::text
