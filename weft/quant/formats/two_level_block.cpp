#include "weft/quant/formats/two_level_block.h"

#include <algorithm>
#include <iterator>

#include "weft/core/error.h"
#include "weft/quant/formats/gguf_i_blocks.h"
#include "weft/quant/formats/gguf_k_blocks.h"

namespace weft::quant {
namespace {

using core::Dtype;

struct BlockDecoder {
  Dtype dtype;
  void (*decode)(const uint8_t* block, TwoLevelBlock& to);
};

constexpr BlockDecoder kBlockDecoders[] = {
    {Dtype::kQ2K, decode_q2_k},     {Dtype::kQ3K, decode_q3_k},    {Dtype::kQ4K, decode_q4_k},
    {Dtype::kQ5K, decode_q5_k},     {Dtype::kQ6K, decode_q6_k},    {Dtype::kIQ2XXS, decode_iq2_xxs},
    {Dtype::kIQ2XS, decode_iq2_xs}, {Dtype::kIQ2S, decode_iq2_s},  {Dtype::kIQ3XXS, decode_iq3_xxs},
    {Dtype::kIQ3S, decode_iq3_s},   {Dtype::kIQ1S, decode_iq1_s},  {Dtype::kIQ1M, decode_iq1_m},
    {Dtype::kIQ4XS, decode_iq4_xs}, {Dtype::kTQ1_0, decode_tq1_0}, {Dtype::kTQ2_0, decode_tq2_0},
};

}  // namespace

void decode_two_level_block(Dtype dtype, const uint8_t* block, TwoLevelBlock& to) {
  const auto* const row = std::ranges::find(kBlockDecoders, dtype, &BlockDecoder::dtype);
  core::check<core::InternalError>(
      row != std::end(kBlockDecoders),
      "quant.decode_two_level_block: type, expected one with blocks of ", kTwoLevelElements,
      ", got ", core::info(dtype).name, "; report this");
  row->decode(block, to);
}

void add_two_bits(const uint8_t* planes, int shift, uint8_t* codes) {
  for (int half = 0; half < 2; ++half, planes += 32) {
    for (int plane = 0; plane < 4; ++plane, codes += 32) {
      for (int i = 0; i < 32; ++i) {
        codes[i] |= static_cast<uint8_t>((planes[i] >> (2 * plane) & 3) << shift);
      }
    }
  }
}

void set_nibbles(const uint8_t* chunks, int bytes, uint8_t* codes) {
  const uint8_t* const end = chunks + kTwoLevelElements / 2;
  for (; chunks < end; chunks += bytes, codes += 2 * bytes) {
    for (int i = 0; i < bytes; ++i) {
      codes[i] = chunks[i] & 15;
      codes[bytes + i] = chunks[i] >> 4;
    }
  }
}

}  // namespace weft::quant
