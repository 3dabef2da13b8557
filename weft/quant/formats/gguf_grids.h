#pragma once

#include <cstdint>

/// The tables of numbers that belong to GGUF's block types. Source: the PyPI package `gguf`
/// (quants.py), out of which tools/tables/make_gguf_grids.py writes them.
namespace weft::quant {

/// Codes of an affine map by an index of four bits, or of three, of which there are eight. Those of
/// IQ3 have a level in bits 0 to 2 of the index and its sign in bit 3, those of IQ2 a level in bits
/// 0 and 1 and its sign in bit 2; those of IQ1 have the grid's level in bits 0 and 1 and the sign
/// of an eighth that is added to it in bit 2, and count eighths. The zero point is half of 2^bits:
/// 8 bits for IQ4, IQ2 and IQ3_XXS, 5 for the others.
extern const uint8_t kIq4Codes[16];
extern const uint8_t kIq2Codes[16];
extern const uint8_t kIq3XxsCodes[16];
extern const uint8_t kIq3SCodes[16];
extern const uint8_t kIq1Codes[16];
extern const uint8_t kMxfp4Codes[16];

/// Levels of eight elements, 2 bits each, the first in the lowest bits.
extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
/// Of IQ1_S and IQ1_M.
extern const uint16_t kIq1Grid[2048];

/// Levels of four elements, 4 bits each, the first in the lowest bits.
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];

}  // namespace weft::quant
