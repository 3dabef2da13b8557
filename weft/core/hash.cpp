#include "weft/core/hash.h"

#include <algorithm>
#include <cstring>

namespace weft::core {

uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash) {
  constexpr uint64_t kPrime = 0x100000001b3;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = (hash ^ word) * kPrime;
    bytes = bytes.subspan(sizeof word);
  }
  for (const std::byte byte : bytes) hash = (hash ^ std::to_integer<uint64_t>(byte)) * kPrime;
  return hash;
}

void HashStream::add(std::span<const std::byte> bytes) {
  if (num_rest_ > 0) {
    const size_t taken = std::min(rest_.size() - num_rest_, bytes.size());
    std::copy_n(bytes.begin(), taken, rest_.begin() + static_cast<std::ptrdiff_t>(num_rest_));
    num_rest_ += taken;
    bytes = bytes.subspan(taken);
    if (num_rest_ < rest_.size()) return;
    hash_ = hash_bytes(rest_, hash_);
    num_rest_ = 0;
  }
  const size_t num_full = bytes.size() / sizeof(uint64_t) * sizeof(uint64_t);
  hash_ = hash_bytes(bytes.first(num_full), hash_);
  num_rest_ = bytes.size() - num_full;
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(num_full), num_rest_, rest_.begin());
}

uint64_t HashStream::value() const { return hash_bytes(std::span(rest_).first(num_rest_), hash_); }

}  // namespace weft::core
