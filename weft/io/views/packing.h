#pragma once

#include <cstdint>
#include <string>

#include "weft/io/dtype.h"

namespace weft::io {

/// How elements lie in bytes: `unit_elements` of them share `unit_bits` bits, a whole number of
/// bytes, and can't be cut apart. A plain type is a unit of one element; Q4_0 is 32 elements in 144
/// bits, 4-bit words are 8 elements in 32 bits.
struct Packing {
  int64_t unit_elements = 1;
  int64_t unit_bits = 8;

  int64_t unit_bytes() const { return unit_bits / 8; }
  bool operator==(const Packing&) const = default;
};

/// Of a file's own type: one element, or a GGUF block.
Packing packing_of(Dtype dtype);

/// Of `bits`-bit values packed into 32-bit words with nothing between them, as MLX packs them. The
/// unit is a word when values don't cross words (2, 4, 8 bits: 16, 8, 4 values), else the fewest
/// values that fill whole bytes (3, 5, 6 bits: 8, 8, 4 values). Throws ConfigError for other bits.
Packing packing_of_bits(int64_t bits);

}  // namespace weft::io
