#pragma once

#include <cstdint>

#include "weft/quant/formats/two_level_block.h"

/// GGUF's IQ types, whose elements are points of a grid, and TQ types, whose elements are -1, 0 and
/// 1. Source: the block layouts of ggml (ggml-common.h) as the PyPI package `gguf` reads them.
namespace weft::quant {

/// Each takes one block of its type apart. IQ types give indices into the type's table of codes
/// (gguf_grids.h), TQ types codes of 2 bits.
void decode_iq2_xxs(const uint8_t* block, TwoLevelBlock& to);
void decode_iq2_xs(const uint8_t* block, TwoLevelBlock& to);
void decode_iq2_s(const uint8_t* block, TwoLevelBlock& to);
void decode_iq3_xxs(const uint8_t* block, TwoLevelBlock& to);
void decode_iq3_s(const uint8_t* block, TwoLevelBlock& to);
void decode_iq1_s(const uint8_t* block, TwoLevelBlock& to);
void decode_iq1_m(const uint8_t* block, TwoLevelBlock& to);
void decode_iq4_xs(const uint8_t* block, TwoLevelBlock& to);
void decode_tq1_0(const uint8_t* block, TwoLevelBlock& to);
void decode_tq2_0(const uint8_t* block, TwoLevelBlock& to);

}  // namespace weft::quant
