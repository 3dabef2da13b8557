#pragma once

#include <cstdint>

#include "weft/quant/formats/two_level_block.h"

/// GGUF's K-quants. Source: the block layouts of ggml (ggml-common.h) as the PyPI package `gguf`
/// reads them.
namespace weft::quant {

/// Each takes one block of its type apart.
void decode_q2_k(const uint8_t* block, TwoLevelBlock& to);
void decode_q3_k(const uint8_t* block, TwoLevelBlock& to);
void decode_q4_k(const uint8_t* block, TwoLevelBlock& to);
void decode_q5_k(const uint8_t* block, TwoLevelBlock& to);
void decode_q6_k(const uint8_t* block, TwoLevelBlock& to);

}  // namespace weft::quant
