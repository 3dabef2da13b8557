#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft::core {

/// Types of a tensor's elements, in files and in memory: safetensors' types, and GGUF's blocks.
enum class Dtype : uint8_t {
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
  kIQ2XXS,
  kIQ2XS,
  kIQ3XXS,
  kIQ1S,
  kIQ4NL,
  kIQ3S,
  kIQ2S,
  kIQ4XS,
  kIQ1M,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
};

/// Numbers of GGUF's types are not negative.
inline constexpr int32_t kNotInGguf = -1;

/// One row of the table of types. A block is the run that is stored together: `block_elements`
/// values in `block_bytes` bytes (1 element for plain types).
struct DtypeInfo {
  /// safetensors' name ("F32"); of a block, ggml's ("Q4_K").
  std::string_view name;
  int64_t block_elements;
  int64_t block_bytes;
  /// GGUF's number of the type.
  int32_t gguf = kNotInGguf;
  /// What numpy, torch and TVM call it ("float32"); empty: they have no such type.
  std::string_view array_name = {};

  bool is_block() const { return block_elements > 1; }
};

/// The row of a type.
const DtypeInfo& info(Dtype dtype);

/// Float64, float32, float16 or bfloat16.
bool is_floating(Dtype dtype);

/// By safetensors' name ("F32", "BF16", …), by GGUF's number, or by the name that numpy, torch and
/// TVM use ("float32"). Blocks have a number alone.
std::optional<Dtype> dtype_from_safetensors(std::string_view name);
std::optional<Dtype> dtype_from_gguf(uint32_t number);
std::optional<Dtype> dtype_from_array_name(std::string_view name);

}  // namespace weft::core
