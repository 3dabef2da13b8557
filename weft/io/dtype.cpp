#include "weft/io/dtype.h"

#include <array>

namespace weft::io {
namespace {

// In the order of Dtype. Block sizes of GGUF's types: ggml's quantization formats.
constexpr std::array<DtypeInfo, 26> kInfos = {{
    {"BOOL", 1, 1},     {"U8", 1, 1},       {"I8", 1, 1},       {"U16", 1, 2},
    {"I16", 1, 2},      {"U32", 1, 4},      {"I32", 1, 4},      {"U64", 1, 8},
    {"I64", 1, 8},      {"F8_E5M2", 1, 1},  {"F8_E4M3", 1, 1},  {"F8_E8M0", 1, 1},
    {"F16", 1, 2},      {"BF16", 1, 2},     {"F32", 1, 4},      {"F64", 1, 8},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},   {"Q2_K", 256, 84},  {"Q3_K", 256, 110}, {"Q4_K", 256, 144},
    {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
}};
static_assert(static_cast<size_t>(Dtype::kQ6K) + 1 == kInfos.size());

}  // namespace

const DtypeInfo& info(Dtype dtype) { return kInfos[static_cast<size_t>(dtype)]; }

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].block_elements == 1 && kInfos[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

std::optional<Dtype> dtype_from_gguf(uint32_t type) {
  switch (type) {
    case 0:
      return Dtype::kF32;
    case 1:
      return Dtype::kF16;
    case 2:
      return Dtype::kQ4_0;
    case 3:
      return Dtype::kQ4_1;
    case 6:
      return Dtype::kQ5_0;
    case 7:
      return Dtype::kQ5_1;
    case 8:
      return Dtype::kQ8_0;
    case 10:
      return Dtype::kQ2K;
    case 11:
      return Dtype::kQ3K;
    case 12:
      return Dtype::kQ4K;
    case 13:
      return Dtype::kQ5K;
    case 14:
      return Dtype::kQ6K;
    case 24:
      return Dtype::kI8;
    case 25:
      return Dtype::kI16;
    case 26:
      return Dtype::kI32;
    case 27:
      return Dtype::kI64;
    case 28:
      return Dtype::kF64;
    case 30:
      return Dtype::kBF16;
    default:
      return std::nullopt;
  }
}

}  // namespace weft::io
