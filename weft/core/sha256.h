#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace weft::core {

inline constexpr size_t kSha256Bytes = 32;

/// The SHA-256 digest of `message`, 32 bytes. Source: FIPS 180-4, section 6.2.
std::string sha256(std::string_view message);

/// The keyed digest HMAC-SHA-256, 32 bytes: who does not know `key` cannot make it. Source: RFC
/// 2104.
std::string hmac_sha256(std::string_view key, std::string_view message);

/// Whether both are the same, in a time that does not tell where they differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// `count` bytes from the system's generator, fit for keys. Throws IoError if it has none.
std::string random_bytes(size_t count);

/// Two hexadecimal digits for each byte.
std::string hex_text(std::string_view bytes);

}  // namespace weft::core
