#include "weft/core/hash.h"

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

}  // namespace weft::core
