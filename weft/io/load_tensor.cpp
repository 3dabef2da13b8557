#include "weft/io/load_tensor.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/new_memory.h"
#include "weft/io/matrix_rules.h"
#include "weft/quant/formats/awq_gptq.h"
#include "weft/quant/formats/gguf_blocks.h"
#include "weft/quant/large_tensor.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using shard::Range;

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

std::optional<at::ScalarType> torch_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kU32:
    case Dtype::kI32:
      return at::kInt;
    case Dtype::kU8:
      return at::kByte;
    default:
      return std::nullopt;
  }
}

std::span<std::byte> bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

struct StoredType {
  std::vector<int64_t> shape;
  at::ScalarType type = at::kByte;
};

// Packed values are bytes, whose rows are the last dim.
StoredType stored_type(const TensorFile& file, const View& view) {
  StoredType stored{view.shape(), at::kByte};
  if (view.packing().unit_elements > 1) {
    int64_t& columns = stored.shape.back();
    columns = columns / view.packing().unit_elements * view.packing().unit_bytes();
    return stored;
  }
  const auto known = torch_type(view.dtype());
  check<FormatError>(known.has_value(), file.path(), ": tensor '", view.tensor_name(), "': type ",
                     info(view.dtype()).name, ", expected a floating or quantized type");
  stored.type = *known;
  return stored;
}

// For a shard as it is stored.
at::Tensor new_stored(const TensorFile& file, const ShardRecipe& recipe) {
  const StoredType type = stored_type(file, recipe.result);
  return quant::large_tensor(type.shape, type.type);
}

at::Tensor read_stored(const TensorFile& file, const ShardRecipe& recipe, ReadStats* stats) {
  at::Tensor stored = new_stored(file, recipe);
  read_shard(file, recipe, bytes_of(stored), stats);
  return stored;
}

// The same in memory that the next chunk will have.
at::Tensor read_chunk(const TensorFile& file, const ShardRecipe& recipe, core::ReadBuffer& buffer,
                      ReadStats* stats) {
  const StoredType type = stored_type(file, recipe.result);
  const std::span<std::byte> bytes = buffer.first(recipe.result.num_bytes());
  read_shard(file, recipe, bytes, stats);
  if (stats != nullptr) {
    stats->peak_host_bytes = std::max<uint64_t>(stats->peak_host_bytes, bytes.size());
  }
  return at::from_blob(bytes.data(), type.shape, type.type);
}

// `wanted` as ranges of what was read for it.
std::vector<Range> within(const std::vector<Range>& wanted, int64_t cover) {
  const std::vector<Range> covers = covering(wanted, cover);
  std::vector<Range> inner;
  int64_t start = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    inner.push_back({start + wanted[i].start - covers[i].start, wanted[i].length});
    start += covers[i].length;
  }
  return inner;
}

bool is_all(const std::vector<Range>& ranges, int64_t size) {
  return shard::total_length(ranges) == size;
}

// Cuts away what was read beside the slice.
quant::QuantizedMatrix trimmed(quant::QuantizedMatrix read, const MatrixSource& matrix) {
  const auto rows = within(matrix.wanted.rows, matrix.format.out_unit);
  const auto columns = within(matrix.wanted.columns, matrix.format.in_unit);
  if (!is_all(rows, quant::out_features(read))) read = quant::select(read, 0, rows);
  if (!is_all(columns, quant::in_features(read))) read = quant::select(read, 1, columns);
  return read;
}

// The same for a chunk of rows, all of which are wanted.
quant::AffineTensor trimmed_columns(const quant::AffineTensor& read, const MatrixSource& matrix) {
  const auto columns = within(matrix.wanted.columns, matrix.format.in_unit);
  return is_all(columns, read.in_features()) ? read : quant::select_affine(read, 1, columns);
}

// Visits the rows in chunks, so that what is read and not yet decoded stays small: each chunk's
// first row and recipe. What an eager function makes can't be had in pieces.
template <class Visit>
void for_each_chunk(const ShardRecipe& recipe, const Visit& visit) {
  constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
  const View& view = recipe.result;
  const uint64_t bytes = view.num_bytes();
  if (bytes <= kChunkBytes || !recipe.eager_steps.empty()) {
    visit(0, recipe);
    return;
  }
  const int64_t rows = view.size(0);
  const auto chunks = static_cast<int64_t>(bytes / kChunkBytes) + 1;
  const int64_t step = std::max<int64_t>(1, rows / chunks);
  for (int64_t start = 0; start < rows; start += step) {
    visit(start, {{}, view.narrow(0, start, std::min(step, rows - start))});
  }
}

// Puts the rows of `part` into `whole` from `start`; makes it of `rows` rows first.
void place_rows(at::Tensor& whole, const at::Tensor& part, int64_t start, int64_t rows) {
  if (!part.defined()) return;
  if (!whole.defined()) {
    if (part.size(0) == rows) {
      whole = part;
      return;
    }
    whole = quant::large_tensor({rows, part.size(1)}, part.scalar_type());
  }
  whole.narrow(0, start, part.size(0)).copy_(part);
}

quant::AffineTensor load_blocks(const TensorFile& file, const MatrixSource& matrix,
                                ReadStats* stats) {
  const View& view = matrix.parts[0]->result;
  quant::AffineTensor whole;
  core::ReadBuffer buffer;
  for_each_chunk(*matrix.parts[0], [&](int64_t start, const ShardRecipe& chunk) {
    at::Tensor stored = read_chunk(file, chunk, buffer, stats);
    const View& rows = chunk.result;
    const quant::AffineTensor part =
        trimmed_columns(quant::from_gguf_blocks(*gguf_block(view.dtype()), bytes_of(stored),
                                                rows.size(0), rows.size(1)),
                        matrix);
    whole.bits = part.bits;
    whole.group_size = part.group_size;
    place_rows(whole.packed, part.packed, start, view.size(0));
    place_rows(whole.scales, part.scales, start, view.size(0));
    place_rows(whole.offsets, part.offsets, start, view.size(0));
  });
  return whole;
}

// The shard in `dtype`. What is stored in that type is read straight to its place.
at::Tensor load_floating(const TensorFile& file, const ShardRecipe& recipe, at::ScalarType dtype,
                         ReadStats* stats) {
  const View& view = recipe.result;
  const auto stored_type = torch_type(view.dtype());
  check<FormatError>(stored_type && at::isFloatingType(*stored_type), file.path(), ": tensor '",
                     view.tensor_name(), "': type ", info(view.dtype()).name,
                     ", expected F32, F16 or BF16");
  if (*stored_type == dtype || view.num_dims() == 0) {
    return read_stored(file, recipe, stats).to(dtype);
  }
  at::Tensor loaded = quant::large_tensor(view.shape(), dtype);
  core::ReadBuffer buffer;
  for_each_chunk(recipe, [&](int64_t start, const ShardRecipe& chunk) {
    const at::Tensor stored = read_chunk(file, chunk, buffer, stats);
    loaded.narrow(0, start, stored.size(0)).copy_(stored);
  });
  return loaded;
}

std::vector<at::Tensor> load_parts(const TensorFile& file, const MatrixSource& matrix,
                                   ReadStats* stats) {
  std::vector<at::Tensor> parts;
  std::vector<PlacedShard> shards;
  for (const ShardRecipe* part : matrix.parts) {
    parts.push_back(new_stored(file, *part));
    shards.push_back({part, bytes_of(parts.back())});
  }
  read_shards(file, shards, stats);
  return parts;
}

quant::QuantizedMatrix load_affine(const TensorFile& file, const MatrixSource& matrix,
                                   ReadStats* stats) {
  const std::vector<at::Tensor> parts = load_parts(file, matrix, stats);
  quant::AffineTensor loaded;
  loaded.bits = matrix.format.bits;
  loaded.group_size = matrix.format.group_size;
  loaded.packed = parts[0];
  loaded.scales = parts[1];
  loaded.offsets = parts[2];
  return trimmed(std::move(loaded), matrix);
}

quant::QuantizedMatrix load_microscaled(const TensorFile& file, const MatrixSource& matrix,
                                        ReadStats* stats) {
  const std::vector<at::Tensor> parts = load_parts(file, matrix, stats);
  quant::MicroscaledTensor loaded;
  loaded.mode = quant::parse_mode(matrix.format.text, file.path());
  loaded.group_size = matrix.format.group_size;
  loaded.packed = parts[0];
  loaded.scales = parts[1];
  return trimmed(std::move(loaded), matrix);
}

// These are repacked, so the stored parts and the result are in memory together for a moment.
void note_parts(ReadStats* stats, const std::vector<at::Tensor>& parts) {
  if (stats == nullptr) return;
  uint64_t bytes = 0;
  for (const at::Tensor& part : parts) bytes += part.nbytes();
  stats->peak_host_bytes = std::max(stats->peak_host_bytes, bytes);
}

quant::QuantizedMatrix load_awq(const TensorFile& file, const MatrixSource& matrix,
                                ReadStats* stats) {
  const std::vector<at::Tensor> parts = load_parts(file, matrix, stats);
  note_parts(stats, parts);
  return trimmed(quant::from_awq(parts[0], parts[1], parts[2]), matrix);
}

quant::QuantizedMatrix load_gptq(const TensorFile& file, const MatrixSource& matrix,
                                 ReadStats* stats) {
  const std::vector<at::Tensor> parts = load_parts(file, matrix, stats);
  note_parts(stats, parts);
  quant::GptqOptions options;
  options.bits = matrix.format.bits;
  options.stores_zero_less_one = matrix.format.stores_zero_less_one;
  options.is_symmetric = matrix.format.is_symmetric;
  constexpr size_t kGroupIndex = 3;
  if (parts.size() > kGroupIndex) {
    const auto columns = covering(matrix.wanted.columns, matrix.format.in_unit);
    quant::check_trivial_g_idx(
        parts[kGroupIndex], columns.front().start, matrix.format.group_size,
        core::join(file.path(), ": tensor '", matrix.format.parts[kGroupIndex].tensor, "'"));
  }
  return trimmed(quant::from_gptq(parts[0], parts[1], parts[2], options), matrix);
}

}  // namespace

LoadedMatrix load_matrix(const TensorFile& file, const MatrixSource& matrix,
                         at::ScalarType dense_dtype, ReadStats* stats) {
  switch (matrix.format.kind) {
    case MatrixKind::kDense:
      return load_floating(file, *matrix.parts[0], dense_dtype, stats);
    case MatrixKind::kGgufBlocks:
      return load_blocks(file, matrix, stats);
    case MatrixKind::kAffine:
      return load_affine(file, matrix, stats);
    case MatrixKind::kMicroscaled:
      return load_microscaled(file, matrix, stats);
    case MatrixKind::kAwq:
      return load_awq(file, matrix, stats);
    case MatrixKind::kGptq:
      return load_gptq(file, matrix, stats);
  }
  core::fail<core::InternalError>("io.load_matrix: unknown kind of ", matrix.format.text);
}

at::Tensor load_tensor(const TensorFile& file, const ShardRecipe& recipe, at::ScalarType dtype,
                       ReadStats* stats) {
  return load_floating(file, recipe, dtype, stats);
}

at::Tensor load_tensor(const TensorFile& file, const std::string& name, at::ScalarType dtype,
                       ReadStats* stats) {
  return load_floating(file, {{}, View::of(file.require(name))}, dtype, stats);
}

}  // namespace weft::io
