#pragma once

#include <cstdint>

/// Inner loops of products between packed codes and activations of eight bits. As kernel.h's files,
/// these share nothing with others that the linker could mix up.
namespace weft::quant::kernels {

/// Rows that lie side by side, and columns that share a scale.
inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 32;

/// A matrix of codes of 4 or 8 bits, panel after panel of kPanelRows rows, block after block of
/// kBlockColumns columns; the last panel may have rows of zeros. A block is kPanelRows scales
/// (float16), as many offsets (float16) unless it is symmetric, then the codes in steps of four
/// columns: byte 4 * row + column. With 4 bits a byte holds a code of step j and, in its upper
/// half, one of step j + 4.
struct Panels {
  const uint8_t* data = nullptr;
  int64_t bits = 0;
  bool is_symmetric = false;
  int64_t num_blocks = 0;

  [[gnu::always_inline]] int64_t block_bytes() const {
    return kPanelRows * ((is_symmetric ? 2 : 4) + kBlockColumns * bits / 8);
  }
  [[gnu::always_inline]] int64_t panel_bytes() const { return num_blocks * block_bytes(); }
};

/// Tokens that are multiplied together.
inline constexpr int64_t kTileTokens = 8;

/// What a block's largest number is rounded to: codes of 8 bits go from -127 to 127. Those of 16
/// are two of 8: code = kUpper * upper + lower, both within -127 and 127.
inline constexpr int kUpper = 128;
inline constexpr int kMostOf8 = 127;
inline constexpr int kMostOf16 = kUpper * kMostOf8;
/// A block whose numbers are all smaller is zeros: the quotient stays finite.
inline constexpr float kLeast = 1e-33F;

/// Tokens rounded block by block: x is about scale * code; `sums` are scale * the sum of a block's
/// codes. Of codes of 16 bits, `codes` are the upper ones. Tile after tile of kTileTokens tokens,
/// the last of what is left; in a tile block after block, and of a block token after token.
struct RoundedInputs {
  const int8_t* codes = nullptr;
  /// In the same places; null with 8 bits.
  const int8_t* lower_codes = nullptr;
  const float* scales = nullptr;
  const float* sums = nullptr;
  int64_t tokens = 0;

  /// Tokens of the tile that begins with token `first`.
  [[gnu::always_inline]] int64_t tile_tokens(int64_t first) const {
    return tokens - first < kTileTokens ? tokens - first : kTileTokens;
  }
};

/// Where a token's blocks go: block b at b * stride, in codes times kBlockColumns.
struct RoundedToken {
  int8_t* codes = nullptr;
  int8_t* lower_codes = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int64_t stride = 1;
};

/// Rows of the result, token t at data + t * stride; room for whole panels.
struct PanelOutputs {
  float* data = nullptr;
  int64_t stride = 0;
};

/// One instruction set.
struct PanelKernel {
  const char* name;
  bool (*runs_here)();
  /// Rounds a token's blocks to codes of 8 bits, or of 16 if there is a place for lower ones; to
  /// nearest, ties to even. Every kernel gives the same codes and scales.
  void (*round)(const float* x, int64_t num_blocks, const RoundedToken& to);
  /// y = x w^T for panels [first, first + count); y.data is the first panel's first row.
  void (*multiply)(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                   const PanelOutputs& y);
};

#if defined(__x86_64__)
extern const PanelKernel kAvx512VnniPanelKernel;
extern const PanelKernel kAvx2PanelKernel;
#endif
extern const PanelKernel kPlainPanelKernel;

}  // namespace weft::quant::kernels
