#pragma once

#include <cstdint>
#include <optional>

namespace weft::core {

/// a * b, or nothing when it does not fit.
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, or nothing when it does not fit.
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// The least multiple of `alignment` (a power of two) that is >= `value`, or nothing.
inline std::optional<uint64_t> checked_align_up(uint64_t value, uint64_t alignment) {
  const auto padded = checked_add(value, alignment - 1);
  if (!padded) return std::nullopt;
  return *padded & ~(alignment - 1);
}

}  // namespace weft::core
