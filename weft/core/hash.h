#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::core {

/// FNV-1a over words of 8 bytes: as fast as a disk, and bytes that differ in one word always have
/// another hash. To see damage, not to keep secrets. Pieces of a multiple of 8 bytes, each with the
/// hash of the one before, give the hash of the whole.
uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325);

}  // namespace weft::core
