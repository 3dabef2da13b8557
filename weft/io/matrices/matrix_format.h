#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"

namespace weft::io {

/// How a file keeps a matrix.
enum class MatrixKind {
  /// One floating tensor.
  kDense,
  /// One tensor of a GGUF block type.
  kGgufBlocks,
  /// MLX's affine: integers in 32-bit words, scales, biases.
  kAffine,
  /// MLX's mxfp4, mxfp8, nvfp4: small floats in 32-bit words, 8-bit scales.
  kMicroscaled,
  /// AutoAWQ's: 4-bit integers packed along `out`, zeros, scales.
  kAwq,
  /// AutoGPTQ's: integers packed along `in`, zeros, scales, the group of each input.
  kGptq,
  /// E4M3 numbers of 8 bits, and floating scales: one for each block, one a row, or one for all.
  kScaledFloats,
  /// compressed-tensors' integers: packed in 32-bit words along `in` or of 8 bits, a scale for each
  /// quant group or row, and perhaps zero points packed along `out`, as a part or beside;
  /// bitsandbytes' of 8 bits.
  kScaledIntegers,
  /// GPTQ's or compressed-tensors' whose columns belong to quant groups in any order (act-order).
  kOrderedIntegers,
  /// bitsandbytes' nf4 and fp4: codes of 4 bits, the 16 numbers that they stand for, and a scale
  /// for each block of codes, whatever rows they are of.
  kCodebook,
  /// AutoAWQ's of version gemv: 4-bit integers packed along `in`, zeros and scales of each row's
  /// quant groups, which are padded.
  kAwqRows,
};
inline constexpr size_t kNumMatrixKinds = 11;

/// Whether io::load_matrix makes plain numbers of it.
inline bool makes_plain(MatrixKind kind) {
  return kind == MatrixKind::kDense || kind == MatrixKind::kScaledFloats ||
         kind == MatrixKind::kOrderedIntegers || kind == MatrixKind::kCodebook;
}

/// One stored tensor of a matrix, and how its dims follow the matrix's.
struct MatrixPart {
  /// The tensor in the file.
  std::string tensor;
  /// What it is called in shard_info, after the model's name of the matrix without ".weight".
  std::string suffix;
  /// Which dims go along `out` and `in`; -1: none does.
  int64_t out_dim = 0;
  int64_t in_dim = 1;
  /// Elements of the matrix that one index of those dims stands for.
  int64_t per_out = 1;
  int64_t per_in = 1;
  /// Not 0: the part has this many indices along `in_dim`, and any columns of the matrix need all
  /// of them.
  int64_t shared_in = 0;
  /// The last dim consists of words that hold values of this many bits; 0: plain elements.
  int64_t bits = 0;
  /// The last dim is two in the file: quant groups, and the words of each.
  bool is_grouped = false;
  /// The file has [in, out].
  bool is_transposed = false;
  /// Not empty: the file has the elements row after row in another shape than this.
  std::vector<int64_t> seen_as = {};
};

/// The scales of kScaledFloats: a tensor [out_count, in_count], of a stack one of them for each
/// matrix, that is read with any part of the matrix. Rows and columns are those of the file.
struct ScaleGrid {
  std::string tensor;
  int64_t out_count = 1;
  int64_t in_count = 1;
  /// Rows and columns of the matrix that share a scale; the last may be fewer. 0: neither the
  /// counts nor config.json say it.
  int64_t per_out = 0;
  int64_t per_in = 0;
};

/// What matrix_format found.
struct MatrixFormat {
  MatrixKind kind = MatrixKind::kDense;
  /// Inputs that share a scale or a block; 1 if none do.
  int64_t group_size = 1;
  /// Runs of inputs and of outputs that are read together; edges within are cut after that.
  int64_t in_unit = 1;
  int64_t out_unit = 1;
  /// Of a packed value; 0 for dense and GGUF.
  int64_t bits = 0;
  /// What config.json calls it: "affine", "mxfp4", "mxfp8", "nvfp4", "awq", "gptq", "bitsandbytes";
  /// "fp8" for kScaledFloats and "int" for kScaledIntegers, of which there are several; empty for
  /// dense and GGUF, of which it says nothing.
  std::string scheme;
  /// Of kGptq, which the tensors do not show: zero points are stored minus one; all zero points are
  /// the middle code.
  bool stores_zero_less_one = true;
  bool is_symmetric = false;
  /// Of kScaledFloats.
  ScaleGrid scales;
  /// For people: "F32", "Q4_1", "affine 4-bit g64", "mxfp4", "awq 4-bit g128".
  std::string text;
  std::vector<MatrixPart> parts;
  /// Tensors that are read whole with any part of the matrix: the scales of kScaledFloats; of
  /// kCodebook what is said of it, the 16 numbers, and one or three for scales; of bitsandbytes' 8
  /// bits the order of numbers; of compressed-tensors' integers zero points whose words hold those
  /// of rows that aren't read together.
  std::vector<std::string> beside;
};

/// The format of a matrix that is one tensor of `dtype`: dense, or blocks. Its part has no tensor's
/// name yet.
MatrixFormat one_tensor_format(Dtype dtype);
/// The same of MLX's affine.
MatrixFormat affine_format(int64_t bits, int64_t group_size);

/// A matrix as a model knows it: its name in the file without the part's suffix (".weight"), and
/// its whole's logical shape. With `stack` it is one of that many that a tensor holds along a
/// leading dim of its own (a mixture's experts).
struct MatrixRef {
  std::string base;
  int64_t out = 0;
  int64_t in = 0;
  int64_t stack = 0;
  /// Its rows are read in another order than the file's, or some of them alone.
  bool has_row_order = false;
};

/// Whether the file has a matrix of that base, stored in any way.
bool has_matrix(const TensorFile& file, const std::string& base);

/// Finds out how `matrix` is stored, by names, types and shapes, and checks that all of its parts
/// fit [out, in]. Throws FormatError naming the file and the tensor.
MatrixFormat matrix_format(const TensorFile& file, const MatrixRef& matrix);

}  // namespace weft::io
