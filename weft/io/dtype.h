#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::io {

/// Element types of tensors in files: safetensors' types, and GGUF's blocks.
enum class Dtype {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF16,
  kBF16,
  kF32,
  kF64,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
};

/// A block is the run that is stored together: `elements` values in `bytes` bytes (1 for plain
/// types).
struct DtypeInfo {
  std::string_view name;
  int64_t block_elements;
  int64_t block_bytes;
};

/// Name and block size of a type.
const DtypeInfo& info(Dtype dtype);
/// By safetensors' name ("F32", "BF16", …), or by GGUF's type number.
std::optional<Dtype> dtype_from_safetensors(std::string_view name);
std::optional<Dtype> dtype_from_gguf(uint32_t type);

}  // namespace weft::io
