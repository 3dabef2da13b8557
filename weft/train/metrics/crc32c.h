#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::train {

/// CRC-32C (Castagnoli), as RFC 3720, appendix B.4 checks it.
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace weft::train
