#include "weft/io/views/packing.h"

#include <numeric>

#include "weft/core/error.h"

namespace weft::io {

Packing packing_of(Dtype dtype) {
  const DtypeInfo& type = info(dtype);
  return {type.block_elements, type.block_bytes * 8};
}

Packing packing_of_bits(int64_t bits) {
  const bool is_known = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
  core::check<core::ConfigError>(is_known, "io.packing_of_bits: ", bits,
                                 " bits, expected 2, 3, 4, 5, 6 or 8");
  constexpr int64_t kWordBits = 32;
  const int64_t unit_bits = kWordBits % bits == 0 ? kWordBits : std::lcm(bits, int64_t{8});
  return {unit_bits / bits, unit_bits};
}

}  // namespace weft::io
