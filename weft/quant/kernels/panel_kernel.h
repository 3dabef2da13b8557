#pragma once

#include <cstdint>

/// Inner loops of products between weights in panels and activations. As kernel.h's files,
/// these share nothing with others that the linker could mix up.
namespace weft::quant::kernels {

/// Rows that lie side by side, and columns that share a scale.
inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kBlockColumns = 32;

/// Blocks of a row that share a number where scales are kInt8.
inline constexpr int64_t kSharedBlocks = 8;

/// What a matrix in panels is made of: codes of 2 to 8 bits with scales, 3 or 4 bits that stand for
/// codes of 8 by a table, or plain numbers.
enum class PanelNumbers : uint8_t {
  kCodes2,
  kCodes3,
  kCodes4,
  kCodes5,
  kCodes6,
  kCodes8,
  kTable3,
  kTable4,
  kBFloat16,
  kShortBFloat16,
  kFloat16,
  kFloat32
};

/// What scales and offsets are: plain numbers, or an int8 times a float32 that kSharedBlocks blocks
/// share, a product that float32 has exactly.
enum class PanelScales : uint8_t { kFloat16, kFloat32, kInt8 };

/// How a matrix lies in panels.
struct PanelForm {
  PanelNumbers numbers = PanelNumbers::kCodes8;
  /// A number is scale * code + offset; without offsets of their own they are -zero * scale.
  bool has_offsets = false;
  float zero = 0;
  PanelScales scales = PanelScales::kFloat16;
  /// Scales of a row in a block: 1, or 2 for groups of half a block.
  int64_t groups = 1;
  /// Of kTable3 and kTable4: 16 codes by index, which live as long as the program.
  const uint8_t* table = nullptr;

  [[gnu::always_inline]] bool is_dense() const { return numbers >= PanelNumbers::kBFloat16; }
  /// Bits of one code or number.
  [[gnu::always_inline]] int64_t bits() const {
    switch (numbers) {
      case PanelNumbers::kCodes2:
        return 2;
      case PanelNumbers::kCodes3:
      case PanelNumbers::kTable3:
        return 3;
      case PanelNumbers::kCodes4:
      case PanelNumbers::kTable4:
        return 4;
      case PanelNumbers::kCodes5:
        return 5;
      case PanelNumbers::kCodes6:
        return 6;
      case PanelNumbers::kCodes8:
        return 8;
      case PanelNumbers::kShortBFloat16:
        return 12;
      case PanelNumbers::kFloat32:
        return 32;
      default:
        return 16;
    }
  }
  /// Bytes of a panel's scales, or offsets, of one group.
  [[gnu::always_inline]] int64_t scale_bytes() const {
    if (scales == PanelScales::kInt8) return kPanelRows;
    return kPanelRows * (scales == PanelScales::kFloat32 ? 4 : 2);
  }
  /// Numbers that kSharedBlocks blocks of a panel share: those of scales, then those of offsets.
  [[gnu::always_inline]] int64_t shared_numbers() const {
    return scales == PanelScales::kInt8 ? kPanelRows * (has_offsets ? 2 : 1) : 0;
  }
  /// Bytes of all scales and offsets of a block, before its codes.
  [[gnu::always_inline]] int64_t header_bytes() const {
    return is_dense() ? 0 : groups * scale_bytes() * (has_offsets ? 2 : 1);
  }
  [[gnu::always_inline]] int64_t block_bytes() const {
    return header_bytes() + kPanelRows * kBlockColumns * bits() / 8;
  }
};

/// A matrix, panel after panel of kPanelRows rows: what blocks share, as float32, then block after
/// block of kBlockColumns columns. The last panel may have rows of zeros.
///
/// A block of codes is, for each group, kPanelRows scales and as many offsets if it has any, then
/// the codes in steps of four columns: byte 4 * row + column. With 4 bits a byte holds a code of
/// step j and, in its upper half, one of step j + 4; with 2 bits one of four neighbouring steps,
/// the first in the lowest bits. With 3 and 5 bits the lower 2 or 4 lie so, and behind them bytes
/// with the highest bit of each step, that of step j at bit j. With 6 bits three steps lie so, then
/// the next three for the second half of the columns; the bytes' two highest bits are a fourth
/// step's lowest, middle and highest two bits.
///
/// A block of plain numbers goes by pairs of columns: of bfloat16 a row's two numbers side by side,
/// row after row; of others the first column's rows, then the second's. Numbers of kShortBFloat16
/// lie as kShortColumns says.
struct Panels {
  const uint8_t* data = nullptr;
  PanelForm form;
  int64_t num_blocks = 0;
  /// Of kShortBFloat16: 16 upper bytes by index.
  const uint8_t* upper_bytes = nullptr;
  /// Of kBFloat16: numbers in the same places that are to be added to these, or null.
  const uint8_t* low = nullptr;
  /// Where these are some columns of a matrix: the first of their blocks, and the blocks of a row
  /// of it and of the tokens that it is multiplied by. 0 blocks: these are all.
  int64_t first_block = 0;
  int64_t row_blocks = 0;

  [[gnu::always_inline]] int64_t blocks_of_row() const {
    return row_blocks == 0 ? num_blocks : row_blocks;
  }
  /// Bytes of a panel before the first block of a row.
  [[gnu::always_inline]] int64_t shared_bytes() const {
    return (blocks_of_row() + kSharedBlocks - 1) / kSharedBlocks * form.shared_numbers() * 4;
  }
  [[gnu::always_inline]] int64_t panel_bytes() const {
    return shared_bytes() + blocks_of_row() * form.block_bytes();
  }
};

/// Columns of kShortBFloat16 that lie together: kShortNumbers lower bytes, then half as many bytes
/// of two indices of upper bytes, the lower half of a byte's for the first half of the lower bytes.
/// Sixteen lower bytes and their upper ones, interleaved, are eight numbers of a pair of columns,
/// in kBFloat16's order, and eight of the next pair, as vectors' lanes of 16 bytes interleave.
inline constexpr int64_t kShortColumns = 8;
inline constexpr int64_t kShortNumbers = kPanelRows * kShortColumns;
inline constexpr int64_t kShortBytes = kShortNumbers + kShortNumbers / 2;

/// Where each byte stands among 16 upper bytes, by its upper four bits and then by its lower ones.
struct ShortIndices {
  /// No index: it stands nowhere.
  static constexpr uint8_t kNone = 0x80;
  uint8_t by_halves[16][16];
  /// The upper halves of bytes that stand somewhere, and how many these are.
  uint8_t upper_halves[16];
  int64_t num_halves = 0;
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
/// codes, and then scale * the sum of its second half's. Of codes of 16 bits, `codes` are the upper
/// ones. Tile after tile of kTileTokens tokens, the last of what is left; in a tile block after
/// block, and of a block token after token.
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

/// Where a token's blocks go: block b at b * stride, in codes times kBlockColumns, in sums twice.
struct RoundedToken {
  int8_t* codes = nullptr;
  int8_t* lower_codes = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;
  int64_t stride = 1;
};

/// Tokens as they are, `stride` numbers apart.
struct DenseInputs {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t tokens = 0;
};

/// Tokens rounded to bfloat16, in the order of RoundedInputs' codes but in the kernel's own tiles.
struct BFloat16Inputs {
  const uint16_t* data = nullptr;
  int64_t tokens = 0;
  /// What rounding has taken away, rounded, in the same places; null: it is lost.
  const uint16_t* low = nullptr;
};

/// Where numbers as bfloat16 go: to `high`, and what rounding takes away to `low` unless that is
/// null. Both parts together have 16 of a float32's 24 bits. Source: Henry, Tang and Heinecke 2019,
/// arXiv:1904.06376.
struct BFloat16Parts {
  uint16_t* high = nullptr;
  uint16_t* low = nullptr;
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
  /// y = x w^T for panels [first, first + count) of codes; y.data is the first panel's first row.
  /// The only product that takes some columns of a matrix (Panels::first_block) as such.
  void (*multiply)(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                   const PanelOutputs& y);
  /// The same for plain numbers, summed in float32. A token's result is the same beside any others.
  void (*multiply_dense)(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                         const PanelOutputs& y);
  /// A panel of kShortBFloat16 as one of bfloat16.
  void (*unpack_short)(const Panels& w, int64_t panel, uint16_t* to);
  /// Of kPanelRows rows of bfloat16, which lie `stride` numbers apart, kShortColumns columns after
  /// the other as kShortBFloat16, until some have a number without index: how many it has written,
  /// `count` at most. Null where such numbers are written one by one.
  int64_t (*pack_short)(const uint16_t* rows, int64_t stride, const ShortIndices& indices,
                        int64_t count, uint8_t* to);
  /// Where the processor multiplies pairs of bfloat16, null elsewhere: rounds a token's blocks to
  /// nearest, ties to even, and writes block b at b * stride blocks; and the product of bfloat16
  /// panels, summed in float32, without those of two low parts.
  void (*round_bfloat16)(const float* x, int64_t num_blocks, const BFloat16Parts& to,
                         int64_t stride) = nullptr;
  void (*multiply_bfloat16)(const Panels& w, int64_t first, int64_t count, const BFloat16Inputs& x,
                            const PanelOutputs& y) = nullptr;
  /// Where such products are faster than those of codes, null elsewhere: a panel of codes as one of
  /// bfloat16, its numbers rounded to nearest, ties to even.
  void (*unpack_codes)(const Panels& w, int64_t panel, const BFloat16Parts& to) = nullptr;
  /// Panels that multiply_bfloat16 takes together.
  int64_t bfloat16_panels = 1;
  /// Tokens of a tile of BFloat16Inputs.
  int64_t bfloat16_tile = kTileTokens;
};

/// PanelKernel::multiply_dense of each instruction set.
void multiply_dense_plain(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                          const PanelOutputs& y);
/// PanelKernel::unpack_short of each instruction set.
void unpack_short_plain(const Panels& w, int64_t panel, uint16_t* to);
#if defined(__x86_64__)
/// The same two, and PanelKernel::pack_short, with AVX-512.
void multiply_dense_avx512(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                           const PanelOutputs& y);
void unpack_short_avx512(const Panels& w, int64_t panel, uint16_t* to);
int64_t pack_short_avx512(const uint16_t* rows, int64_t stride, const ShortIndices& indices,
                          int64_t count, uint8_t* to);
/// The same three with AVX2.
void multiply_dense_avx2(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                         const PanelOutputs& y);
void unpack_short_avx2(const Panels& w, int64_t panel, uint16_t* to);
int64_t pack_short_avx2(const uint16_t* rows, int64_t stride, const ShortIndices& indices,
                        int64_t count, uint8_t* to);
/// PanelKernel::round and multiply for AVX-512 with VNNI.
void round_codes_avx512(const float* x, int64_t num_blocks, const RoundedToken& to);
void multiply_codes_avx512(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                           const PanelOutputs& y);
/// PanelKernel::round_bfloat16, multiply_bfloat16 and bfloat16_panels for AVX512_BF16.
void round_bfloat16_avx512(const float* x, int64_t num_blocks, const BFloat16Parts& to,
                           int64_t stride);
/// See round_bfloat16_avx512.
void multiply_bfloat16_avx512(const Panels& w, int64_t first, int64_t count,
                              const BFloat16Inputs& x, const PanelOutputs& y);
inline constexpr int64_t kAvx512Bf16Panels = 3;
extern const PanelKernel kAmxPanelKernel;
extern const PanelKernel kAvx512Bf16PanelKernel;
extern const PanelKernel kAvx512VnniPanelKernel;
extern const PanelKernel kAvx2PanelKernel;
#endif
extern const PanelKernel kPlainPanelKernel;

}  // namespace weft::quant::kernels
