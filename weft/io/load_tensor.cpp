#include "weft/io/load_tensor.h"

#include <ATen/ops/empty.h>

#include <numeric>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/quant/gguf_blocks.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using core::list_text;
using shard::Range;

constexpr char kWeightSuffix[] = ".weight";

// GGUF's block types and quant's decoders of them.
std::optional<quant::GgufBlock> gguf_block(Dtype dtype) {
  switch (dtype) {
    case Dtype::kQ4_0:
      return quant::GgufBlock::kQ4_0;
    case Dtype::kQ4_1:
      return quant::GgufBlock::kQ4_1;
    case Dtype::kQ5_0:
      return quant::GgufBlock::kQ5_0;
    case Dtype::kQ5_1:
      return quant::GgufBlock::kQ5_1;
    case Dtype::kQ8_0:
      return quant::GgufBlock::kQ8_0;
    case Dtype::kQ2K:
      return quant::GgufBlock::kQ2K;
    case Dtype::kQ3K:
      return quant::GgufBlock::kQ3K;
    case Dtype::kQ4K:
      return quant::GgufBlock::kQ4K;
    case Dtype::kQ5K:
      return quant::GgufBlock::kQ5K;
    case Dtype::kQ6K:
      return quant::GgufBlock::kQ6K;
    default:
      return std::nullopt;
  }
}

std::optional<at::ScalarType> floating_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

// "x.weight" -> "x.scales": MLX names the parts of one matrix so.
std::string sibling(const std::string& weight_name, const std::string& part) {
  const size_t stem = weight_name.size() - (sizeof(kWeightSuffix) - 1);
  return weight_name.substr(0, stem) + "." + part;
}

bool ends_with_weight(const std::string& name) { return name.ends_with(kWeightSuffix); }

void check_shape(const TensorFile& file, const TensorMeta& meta,
                 const std::vector<int64_t>& expected) {
  check<FormatError>(meta.shape == expected, file.path(), ": tensor '", meta.name, "': shape ",
                     list_text(meta.shape), ", expected ", list_text(expected),
                     "; the file and the model's config disagree");
}

MatrixFormat affine_format(const TensorFile& file, const MatrixRef& matrix,
                           const TensorMeta& weight) {
  const TensorMeta& scales = file.require(sibling(matrix.name, "scales"));
  const TensorMeta& offsets = file.require(sibling(matrix.name, "biases"));
  const bool fits = weight.shape.size() == 2 && scales.shape.size() == 2 && scales.shape[1] > 0 &&
                    matrix.in % scales.shape[1] == 0 && (weight.shape[1] * 32) % matrix.in == 0;
  check<FormatError>(fits, file.path(), ": tensor '", weight.name, "': packed ",
                     list_text(weight.shape), " with scales ", list_text(scales.shape),
                     ", expected an affine matrix of [", matrix.out, ", ", matrix.in, "]");
  const int64_t bits = weight.shape[1] * 32 / matrix.in;
  const int64_t group = matrix.in / scales.shape[1];
  check_shape(file, weight, {matrix.out, matrix.in * bits / 32});
  check_shape(file, scales, {matrix.out, matrix.in / group});
  check_shape(file, offsets, scales.shape);
  check<FormatError>(floating_type(scales.dtype) && scales.dtype == offsets.dtype, file.path(),
                     ": tensor '", scales.name, "': ", info(scales.dtype).name,
                     " scales, expected F32, F16 or BF16 like the biases");
  return {MatrixKind::kAffine, group, bits, core::join("affine ", bits, "-bit g", group)};
}

// The smallest range of whole units that holds `range`.
Range outward(const Range& range, int64_t unit) {
  const int64_t start = range.start / unit * unit;
  const int64_t end = (range.end() + unit - 1) / unit * unit;
  return {start, end - start};
}

// The columns that are read for `columns`: whole quant groups in whole words. Words of 32 bits hold
// whole elements only every lcm(32, bits) bits.
Range affine_columns(const MatrixFormat& format, const Range& columns) {
  const int64_t word_elements = 32 / std::gcd<int64_t>(32, format.bits);
  return outward(columns, std::lcm(format.column_unit, word_elements));
}

std::span<std::byte> bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// Reads rows × columns of a tensor whose elements torch knows.
at::Tensor read_plain(const TensorFile& file, const TensorMeta& meta, const MatrixSlice& slice,
                      at::ScalarType type, ReadStats* stats) {
  at::Tensor tensor = at::empty({shard::total_length(slice.rows), slice.columns.length}, type);
  file.read(matrix_runs(meta, slice.rows, slice.columns), bytes_of(tensor), stats);
  return tensor;
}

// Keeps what the slice asked for of a matrix that was read out to whole groups.
LoadedMatrix trimmed(quant::AffineTensor whole_groups, const Range& read, const Range& wanted) {
  if (read == wanted) return whole_groups;
  return quant::slice_affine(whole_groups, {0, whole_groups.out_features()},
                             {wanted.start - read.start, wanted.length});
}

LoadedMatrix load_blocks(const TensorFile& file, const TensorMeta& meta, const MatrixSlice& slice,
                         ReadStats* stats) {
  const Range columns = outward(slice.columns, info(meta.dtype).block_elements);
  const std::vector<ByteRun> runs = matrix_runs(meta, slice.rows, columns);
  const int64_t rows = shard::total_length(slice.rows);
  std::vector<std::byte> blocks(static_cast<size_t>(
      rows * (columns.length / info(meta.dtype).block_elements) * info(meta.dtype).block_bytes));
  file.read(runs, blocks, stats);
  return trimmed(quant::from_gguf_blocks(*gguf_block(meta.dtype), blocks, rows, columns.length),
                 columns, slice.columns);
}

LoadedMatrix load_affine(const TensorFile& file, const MatrixRef& matrix,
                         const MatrixFormat& format, const MatrixSlice& slice, ReadStats* stats) {
  const TensorMeta& weight = file.require(matrix.name);
  const TensorMeta& scales = file.require(sibling(matrix.name, "scales"));
  const TensorMeta& offsets = file.require(sibling(matrix.name, "biases"));
  const Range columns = affine_columns(format, slice.columns);
  const Range words = {columns.start * format.bits / 32, columns.length * format.bits / 32};
  const Range groups = {columns.start / format.column_unit, columns.length / format.column_unit};
  const at::ScalarType type = *floating_type(scales.dtype);
  quant::AffineTensor loaded;
  loaded.bits = format.bits;
  loaded.group_size = format.column_unit;
  loaded.packed = read_plain(file, weight, {slice.rows, words}, at::kInt, stats).view(at::kByte);
  loaded.scales = read_plain(file, scales, {slice.rows, groups}, type, stats);
  loaded.offsets = read_plain(file, offsets, {slice.rows, groups}, type, stats);
  return trimmed(std::move(loaded), columns, slice.columns);
}

}  // namespace

MatrixFormat matrix_format(const TensorFile& file, const MatrixRef& matrix) {
  const TensorMeta& meta = file.require(matrix.name);
  if (meta.dtype == Dtype::kU32 && ends_with_weight(matrix.name)) {
    return affine_format(file, matrix, meta);
  }
  check_shape(file, meta, {matrix.out, matrix.in});
  const std::string name(info(meta.dtype).name);
  if (gguf_block(meta.dtype)) {
    return {MatrixKind::kGgufBlocks, info(meta.dtype).block_elements, 0, name};
  }
  check<FormatError>(floating_type(meta.dtype).has_value(), file.path(), ": tensor '", meta.name,
                     "': type ", name, ", expected a floating or quantized type");
  return {MatrixKind::kDense, 1, 0, name};
}

std::vector<std::string> matrix_parts(const TensorFile& file, const MatrixRef& matrix) {
  if (matrix_format(file, matrix).kind != MatrixKind::kAffine) return {matrix.name};
  return {matrix.name, sibling(matrix.name, "scales"), sibling(matrix.name, "biases")};
}

uint64_t slice_bytes(const TensorFile& file, const MatrixRef& matrix, const MatrixSlice& slice) {
  const MatrixFormat format = matrix_format(file, matrix);
  const auto rows = static_cast<uint64_t>(shard::total_length(slice.rows));
  if (format.kind == MatrixKind::kAffine) {
    const TensorMeta& scales = file.require(sibling(matrix.name, "scales"));
    const auto columns = static_cast<uint64_t>(affine_columns(format, slice.columns).length);
    const uint64_t groups = columns / static_cast<uint64_t>(format.column_unit);
    return rows * (columns * static_cast<uint64_t>(format.bits) / 8 +
                   2 * groups * info(scales.dtype).block_bytes);
  }
  const DtypeInfo& type = info(file.require(matrix.name).dtype);
  const uint64_t blocks = outward(slice.columns, type.block_elements).length / type.block_elements;
  return rows * blocks * type.block_bytes;
}

LoadedMatrix load_matrix(const TensorFile& file, const MatrixRef& matrix, const MatrixSlice& slice,
                         at::ScalarType dense_dtype, ReadStats* stats) {
  const MatrixFormat format = matrix_format(file, matrix);
  const TensorMeta& meta = file.require(matrix.name);
  switch (format.kind) {
    case MatrixKind::kGgufBlocks:
      return load_blocks(file, meta, slice, stats);
    case MatrixKind::kAffine:
      return load_affine(file, matrix, format, slice, stats);
    case MatrixKind::kDense:
      break;
  }
  return read_plain(file, meta, slice, *floating_type(meta.dtype), stats).to(dense_dtype);
}

at::Tensor load_vector(const TensorFile& file, const std::string& name, int64_t size,
                       const Range& range, at::ScalarType dtype, ReadStats* stats) {
  const TensorMeta& meta = file.require(name);
  check_shape(file, meta, {size});
  const auto type = floating_type(meta.dtype);
  check<FormatError>(type.has_value(), file.path(), ": tensor '", name, "': type ",
                     info(meta.dtype).name, ", expected F32, F16 or BF16");
  return read_plain(file, meta, {{{0, 1}}, range}, *type, stats).squeeze(0).to(dtype);
}

}  // namespace weft::io
