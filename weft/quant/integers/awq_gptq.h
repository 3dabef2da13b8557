#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/quant/affine.h"
#include "weft/quant/integers/ordered_integers.h"

namespace weft::quant {

/// Matrices of AWQ and GPTQ files, which are kept [in, out] in 32-bit words, as AffineTensors
/// [out, in]: w = scale * (q - zero). With offset = -zero * scale in float32 all values are exact.
/// All take a whole matrix or a rank's part of one: words are never cut, and `scales` and `qzeros`
/// may have more rows than the file's where a part cuts quant groups (each row repeated). The group
/// size is in / rows of scales.

/// qweight: int32 [in, out / 8]; a word holds the columns 0 2 4 6 1 3 5 7 of its eight, lowest bits
/// first. qzeros: int32 [groups, out / 8], the same. scales: floating [groups, out].
/// Throws ShapeError naming the part that doesn't fit.
/// Source: the GEMM layout of the PyPI package autoawq.
AffineTensor from_awq(const at::Tensor& qweight, const at::Tensor& qzeros,
                      const at::Tensor& scales);

/// AWQ's version gemv, kept [out, in]. packed: uint8 [out, columns / 2], codes as a stream along
/// each row, lowest bits first. qzeros: int32 [out, groups / 8], the same, and scales: floating
/// [out, groups], of all quant groups of the row and of none, which fill the last words. `groups`:
/// to which of them each of the equal runs of columns belongs.
/// Throws ShapeError naming the part that doesn't fit.
/// Source: WQLinear_GEMV of the PyPI package autoawq.
AffineTensor from_awq_rows(const at::Tensor& packed, const at::Tensor& qzeros,
                           const at::Tensor& scales, std::span<const int64_t> groups);

/// What a GPTQ file's config says.
struct GptqOptions {
  /// "bits": 2, 3, 4 or 8.
  int64_t bits = 4;
  /// Zero points are stored less one, as all do but "checkpoint_format": "gptq_v2".
  bool stores_zero_less_one = true;
  /// "sym": every zero point is 2^(bits-1). The result keeps no offsets and the dtype of scales.
  bool is_symmetric = false;
};

/// qweight: int32 [in * bits / 32, out], a stream of bits down each column, lowest first. qzeros:
/// int32 [groups, out * bits / 32], a stream along each row. scales: floating [groups, out].
/// Throws ShapeError naming the part that doesn't fit, or a zero point that is not the one that
/// is_symmetric promises.
/// Source: the PyPI packages auto-gptq and gptqmodel.
AffineTensor from_gptq(const at::Tensor& qweight, const at::Tensor& qzeros,
                       const at::Tensor& scales, const GptqOptions& options = {});

/// The same of a file with act-order, whose columns belong to quant groups in any order: `qzeros`
/// and `scales` are those of all groups. `groups` of the result is the caller's to set: g_idx.
/// Throws as from_gptq.
OrderedIntegers ordered_gptq(const at::Tensor& qweight, const at::Tensor& qzeros,
                             const at::Tensor& scales, const GptqOptions& options);

/// Throws ConfigError naming `where` unless every row of a GPTQ matrix belongs to the quant group
/// in which it lies. g_idx: int32 [rows], those of the matrix's rows from `first_row` on. Files
/// made with "desc_act" (act-order) have others, and say so in config.json.
void check_trivial_g_idx(const at::Tensor& g_idx, int64_t first_row, int64_t group_size,
                         const std::string& where);

}  // namespace weft::quant
