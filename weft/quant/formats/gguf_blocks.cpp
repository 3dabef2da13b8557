#include "weft/quant/formats/gguf_blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "weft/core/checked.h"
#include "weft/core/error.h"
#include "weft/quant/code_stream.h"
#include "weft/quant/formats/gguf_k_blocks.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::Dtype;
using core::ShapeError;

constexpr GgufBlockInfo kBlocks[] = {
    {Dtype::kQ4_0, 4, 32, true, false}, {Dtype::kQ4_1, 4, 32, false, false},
    {Dtype::kQ5_0, 5, 32, true, false}, {Dtype::kQ5_1, 5, 32, false, false},
    {Dtype::kQ8_0, 8, 32, true, false}, {Dtype::kQ2K, 2, 16, false, true},
    {Dtype::kQ3K, 3, 16, true, true},   {Dtype::kQ4K, 4, 32, false, true},
    {Dtype::kQ5K, 5, 32, false, true},  {Dtype::kQ6K, 6, 16, true, true},
    {Dtype::kMXFP4, 5, 32, true, true},
};

/// A byte of exponent, 16 bytes of E2M1 elements in the nibbles' order of the others. The code of
/// an element is twice its value and 16. Source: OCP Microscaling Formats (MX) Specification v1.0.
void decode_mxfp4(const uint8_t* block, uint8_t* codes, float* scale) {
  constexpr std::array<uint8_t, 16> kCodes = {16, 17, 18, 19, 20, 22, 24, 28,
                                              16, 15, 14, 13, 12, 10, 8,  4};
  constexpr int kBias = 127;
  for (int j = 0; j < 16; ++j) {
    codes[j] = kCodes[block[1 + j] & 15];
    codes[j + 16] = kCodes[block[1 + j] >> 4];
  }
  *scale = std::ldexp(0.5F, block[0] - kBias);
}

/// Where rows of the AffineTensor are written; scales and offsets in bytes.
struct Parts {
  uint8_t* packed = nullptr;
  uint8_t* scales = nullptr;
  uint8_t* offsets = nullptr;
};

void convert_two_levels(const GgufBlockInfo& info, const uint8_t* block, uint8_t* codes,
                        const Parts& to) {
  TwoLevelBlock parts;
  decode_two_level_block(info.dtype, block, parts);
  std::ranges::copy(parts.codes, codes);
  const auto groups = static_cast<size_t>(core::info(info.dtype).block_elements / info.group_size);
  for (size_t i = 0; i < groups; ++i) {
    const float scale = parts.scale * static_cast<float>(parts.scales[i]);
    std::memcpy(to.scales + i * sizeof(float), &scale, sizeof(float));
    if (to.offsets == nullptr) continue;
    const float offset = parts.offset * static_cast<float>(parts.offsets[i]);
    std::memcpy(to.offsets + i * sizeof(float), &offset, sizeof(float));
  }
}

void convert_block(const GgufBlockInfo& info, const uint8_t* block, uint8_t* codes,
                   const Parts& to) {
  if (info.dtype == Dtype::kMXFP4) {
    decode_mxfp4(block, codes, reinterpret_cast<float*>(to.scales));
    return;
  }
  if (info.has_float_scales) return convert_two_levels(info, block, codes, to);
  decode_one_level_codes(info, block, codes);
  std::memcpy(to.scales, block, 2);
  if (to.offsets != nullptr) std::memcpy(to.offsets, block + 2, 2);
}

void convert_row(const GgufBlockInfo& info, const uint8_t* blocks, std::span<uint8_t> codes,
                 Parts to) {
  const core::DtypeInfo& type = core::info(info.dtype);
  const int64_t in = static_cast<int64_t>(codes.size());
  const int64_t scale_bytes =
      type.block_elements / info.group_size * (info.has_float_scales ? 4 : 2);
  const std::span packed(to.packed, static_cast<size_t>(in * info.bits / 8));
  for (int64_t block = 0; block < in / type.block_elements; ++block) {
    convert_block(info, blocks + block * type.block_bytes,
                  codes.data() + block * type.block_elements, to);
    to.scales += scale_bytes;
    if (to.offsets != nullptr) to.offsets += scale_bytes;
  }
  pack_codes(codes, info.bits, packed);
}

}  // namespace

const GgufBlockInfo& gguf_block_info(Dtype dtype) {
  const auto* const row = std::ranges::find(kBlocks, dtype, &GgufBlockInfo::dtype);
  core::check<core::InternalError>(row != std::end(kBlocks), "quant: ", core::info(dtype).name,
                                   " is no block type of GGUF that weft reads");
  return *row;
}

void check_gguf_size(Dtype dtype, size_t given, int64_t out, int64_t in, const char* where) {
  const core::DtypeInfo& type = core::info(dtype);
  check<ShapeError>(out > 0 && in > 0 && in % type.block_elements == 0, where, ": ", type.name,
                    " matrix, expected rows of whole blocks of ", type.block_elements,
                    " columns, got shape [", out, ", ", in, "]; cut between blocks");
  const auto row_bytes = core::checked_mul(in / type.block_elements, type.block_bytes);
  const auto bytes = row_bytes ? core::checked_mul(*row_bytes, out) : std::nullopt;
  check<ShapeError>(bytes == given, where, ": ", type.name, " blocks of a [", out, ", ", in,
                    "] matrix, expected ", bytes ? core::join(*bytes) : "more than fit in memory",
                    " bytes, got ", given, "; check the shape");
}

void decode_one_level_codes(const GgufBlockInfo& info, const uint8_t* block, uint8_t* codes) {
  const uint8_t* rest = block + (info.is_symmetric ? 2 : 4);
  if (info.bits == 8) {
    for (int e = 0; e < 32; ++e) codes[e] = rest[e] ^ 0x80;
    return;
  }
  uint32_t fifths = 0;
  if (info.bits == 5) {
    fifths = rest[0] | rest[1] << 8 | rest[2] << 16 | static_cast<uint32_t>(rest[3]) << 24;
    rest += 4;
  }
  for (int j = 0; j < 16; ++j) {
    codes[j] = rest[j] & 15;
    codes[j + 16] = rest[j] >> 4;
  }
  if (info.bits == 4) return;
  for (int j = 0; j < 32; ++j) codes[j] |= static_cast<uint8_t>((fifths >> j & 1) << 4);
}

AffineTensor from_gguf_blocks(Dtype dtype, std::span<const std::byte> blocks, int64_t out,
                              int64_t in) {
  const GgufBlockInfo& info = gguf_block_info(dtype);
  check_gguf_size(dtype, blocks.size(), out, in, "quant.from_gguf_blocks");
  const int64_t groups = in / info.group_size;
  // The allocator of small memory could not use again what one of many such tensors leaves.
  AffineTensor w{info.bits,
                 info.group_size,
                 large_tensor({out, in * info.bits / 8}, at::kByte),
                 large_tensor({out, groups}, info.scale_dtype()),
                 {}};
  if (!info.is_symmetric) w.offsets = large_tensor({out, groups}, info.scale_dtype());
  const auto* from = reinterpret_cast<const uint8_t*>(blocks.data());
  const int64_t row_bytes = static_cast<int64_t>(blocks.size()) / out;
  const Parts parts{
      w.packed.mutable_data_ptr<uint8_t>(), static_cast<uint8_t*>(w.scales.mutable_data_ptr()),
      info.is_symmetric ? nullptr : static_cast<uint8_t*>(w.offsets.mutable_data_ptr())};
  at::parallel_for(0, out, rows_per_thread(in), [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(in));
    const int64_t scale_bytes = groups * static_cast<int64_t>(w.scales.element_size());
    for (int64_t row = begin; row < end; ++row) {
      const Parts to{parts.packed + row * w.packed.size(1), parts.scales + row * scale_bytes,
                     info.is_symmetric ? nullptr : parts.offsets + row * scale_bytes};
      convert_row(info, from + row * row_bytes, codes, to);
    }
  });
  return w;
}

}  // namespace weft::quant
