#pragma once

#include <cstdint>

#include "weft/io/formats/byte_reader.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// GGUF's value types, by their numbers in the file.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// Reads the value of type number `type` at the reader's position. Arrays of arrays are refused.
/// Throws FormatError in the reader's words.
MetaValue read_gguf_value(ByteReader& reader, uint32_t type);

}  // namespace weft::io
