#include "weft/core/dtype.h"

#include <algorithm>
#include <array>

namespace weft::core {
namespace {

// In the order of Dtype. Numbers and block sizes of GGUF's types: ggml's table of types.
constexpr std::array<DtypeInfo, 38> kInfos = {{
    {"BOOL", 1, 1, kNotInGguf, "bool"},
    {"U8", 1, 1, kNotInGguf, "uint8"},
    {"I8", 1, 1, 24, "int8"},
    {"U16", 1, 2, kNotInGguf, "uint16"},
    {"I16", 1, 2, 25, "int16"},
    {"U32", 1, 4, kNotInGguf, "uint32"},
    {"I32", 1, 4, 26, "int32"},
    {"U64", 1, 8, kNotInGguf, "uint64"},
    {"I64", 1, 8, 27, "int64"},
    {"F8_E5M2", 1, 1, kNotInGguf, "float8_e5m2"},
    {"F8_E4M3", 1, 1, kNotInGguf, "float8_e4m3fn"},
    {"F8_E8M0", 1, 1},
    {"F16", 1, 2, 1, "float16"},
    {"BF16", 1, 2, 30, "bfloat16"},
    {"F32", 1, 4, 0, "float32"},
    {"F64", 1, 8, 28, "float64"},
    {"Q4_0", 32, 18, 2},
    {"Q4_1", 32, 20, 3},
    {"Q5_0", 32, 22, 6},
    {"Q5_1", 32, 24, 7},
    {"Q8_0", 32, 34, 8},
    {"Q2_K", 256, 84, 10},
    {"Q3_K", 256, 110, 11},
    {"Q4_K", 256, 144, 12},
    {"Q5_K", 256, 176, 13},
    {"Q6_K", 256, 210, 14},
    {"IQ2_XXS", 256, 66, 16},
    {"IQ2_XS", 256, 74, 17},
    {"IQ3_XXS", 256, 98, 18},
    {"IQ1_S", 256, 50, 19},
    {"IQ4_NL", 32, 18, 20},
    {"IQ3_S", 256, 110, 21},
    {"IQ2_S", 256, 82, 22},
    {"IQ4_XS", 256, 136, 23},
    {"IQ1_M", 256, 56, 29},
    {"TQ1_0", 256, 54, 34},
    {"TQ2_0", 256, 66, 35},
    {"MXFP4", 32, 17, 39},
}};
static_assert(static_cast<size_t>(Dtype::kMXFP4) + 1 == kInfos.size());

template <class Matches>
std::optional<Dtype> find_dtype(const Matches& matches) {
  const auto* const row = std::ranges::find_if(kInfos, matches);
  if (row == kInfos.end()) return std::nullopt;
  return static_cast<Dtype>(row - kInfos.begin());
}

}  // namespace

const DtypeInfo& info(Dtype dtype) { return kInfos[static_cast<size_t>(dtype)]; }

bool is_floating(Dtype dtype) {
  return dtype == Dtype::kF64 || dtype == Dtype::kF32 || dtype == Dtype::kF16 ||
         dtype == Dtype::kBF16;
}

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  return find_dtype([&](const DtypeInfo& row) { return !row.is_block() && row.name == name; });
}

std::optional<Dtype> dtype_from_gguf(uint32_t number) {
  return find_dtype([&](const DtypeInfo& row) {
    return row.gguf != kNotInGguf && static_cast<uint32_t>(row.gguf) == number;
  });
}

std::optional<Dtype> dtype_from_array_name(std::string_view name) {
  return find_dtype(
      [&](const DtypeInfo& row) { return !row.array_name.empty() && row.array_name == name; });
}

}  // namespace weft::core
