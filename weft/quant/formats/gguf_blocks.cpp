#include "weft/quant/formats/gguf_blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "weft/core/checked.h"
#include "weft/core/error.h"
#include "weft/quant/code_stream.h"
#include "weft/quant/formats/gguf_grids.h"
#include "weft/quant/formats/two_level_block.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::Dtype;
using core::ShapeError;

constexpr GgufBlockInfo kBlocks[] = {
    {Dtype::kQ4_0, 4, 32, true, false},
    {Dtype::kQ4_1, 4, 32, false, false},
    {Dtype::kQ5_0, 5, 32, true, false},
    {Dtype::kQ5_1, 5, 32, false, false},
    {Dtype::kQ8_0, 8, 32, true, false},
    {Dtype::kQ2K, 2, 16, false, true},
    {Dtype::kQ3K, 3, 16, true, true},
    {Dtype::kQ4K, 4, 32, false, true},
    {Dtype::kQ5K, 5, 32, false, true},
    {Dtype::kQ6K, 6, 16, true, true},
    {Dtype::kIQ2XXS, 8, 32, true, true, kIq2Codes, 3},
    {Dtype::kIQ2XS, 8, 16, true, true, kIq2Codes, 3},
    {Dtype::kIQ3XXS, 8, 32, true, true, kIq3XxsCodes},
    {Dtype::kIQ1S, 5, 32, true, true, kIq1Codes, 3},
    {Dtype::kIQ4NL, 8, 32, true, false, kIq4Codes},
    {Dtype::kIQ3S, 5, 32, true, true, kIq3SCodes},
    {Dtype::kIQ2S, 8, 16, true, true, kIq2Codes, 3},
    {Dtype::kIQ4XS, 8, 32, true, true, kIq4Codes},
    {Dtype::kIQ1M, 5, 16, true, true, kIq1Codes, 3},
    {Dtype::kTQ1_0, 2, 32, true, true},
    {Dtype::kTQ2_0, 2, 32, true, true},
    {Dtype::kMXFP4, 5, 32, true, true, kMxfp4Codes},
};

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

void convert_one_level(const GgufBlockInfo& info, const uint8_t* block, uint8_t* codes,
                       const Parts& to) {
  decode_one_level_codes(info, block, codes);
  if (info.has_float_scales) {
    const float scale = mxfp4_scale(block);
    std::memcpy(to.scales, &scale, sizeof(float));
    return;
  }
  std::memcpy(to.scales, block, 2);
  if (to.offsets != nullptr) std::memcpy(to.offsets, block + 2, 2);
}

void convert_block(const GgufBlockInfo& info, const uint8_t* block, std::span<uint8_t> codes,
                   const Parts& to) {
  if (codes.size() == kTwoLevelElements) {
    convert_two_levels(info, block, codes.data(), to);
  } else {
    convert_one_level(info, block, codes.data(), to);
  }
  if (info.table == nullptr) return;
  for (uint8_t& code : codes) code = info.table[code];
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
                  codes.subspan(static_cast<size_t>(block * type.block_elements),
                                static_cast<size_t>(type.block_elements)),
                  to);
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
  const uint8_t* rest = block + info.header_bytes();
  const int64_t bits = info.index_bits();
  if (bits == 8) {
    for (int e = 0; e < 32; ++e) codes[e] = rest[e] ^ 0x80;
    return;
  }
  uint32_t fifths = 0;
  if (bits == 5) {
    fifths = rest[0] | rest[1] << 8 | rest[2] << 16 | static_cast<uint32_t>(rest[3]) << 24;
    rest += 4;
  }
  for (int j = 0; j < 16; ++j) {
    codes[j] = rest[j] & 15;
    codes[j + 16] = rest[j] >> 4;
  }
  if (bits == 4) return;
  for (int j = 0; j < 32; ++j) codes[j] |= static_cast<uint8_t>((fifths >> j & 1) << 4);
}

// A byte of exponent. Source: OCP Microscaling Formats (MX) Specification v1.0.
float mxfp4_scale(const uint8_t* block) {
  constexpr int kBias = 127;
  return std::ldexp(0.5F, block[0] - kBias);
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
