#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::core {

inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325;

/// FNV-1a over words of 8 bytes: as fast as a disk, and bytes that differ in one word always have
/// another hash. To see damage, not to keep secrets. Pieces of a multiple of 8 bytes, each with the
/// hash of the one before, give the hash of the whole.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = kHashOfNothing);

/// hash_bytes of bytes that come in pieces of any lengths.
class HashStream {
 public:
  void add(std::span<const std::byte> bytes);
  /// Of all bytes so far.
  uint64_t value() const;

 private:
  uint64_t hash_ = kHashOfNothing;
  // Bytes of a word that is not full yet.
  std::array<std::byte, sizeof(uint64_t)> rest_{};
  size_t num_rest_ = 0;
};

}  // namespace weft::core
