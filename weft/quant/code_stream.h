#pragma once

#include <cstdint>
#include <span>

namespace weft::quant {

/// Writes codes of `bits` bits (1 to 8; higher bits are 0) as one stream, lowest bit first, as
/// AffineTensor has them; `packed` has codes.size() * bits / 8 bytes, a whole number. The same as
/// reference::pack, eight codes at a time.
void pack_codes(std::span<const uint8_t> codes, int64_t bits, std::span<uint8_t> packed);

/// Reads codes.size() codes out of a stream of that many and no more.
void unpack_codes(std::span<const uint8_t> packed, int64_t bits, std::span<uint8_t> codes);

}  // namespace weft::quant
