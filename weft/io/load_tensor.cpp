#include "weft/io/load_tensor.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/memory/new_memory.h"
#include "weft/io/load_parts.h"
#include "weft/io/matrices/codebook_values.h"
#include "weft/io/matrices/scaled_floats.h"
#include "weft/io/matrix_rules.h"
#include "weft/io/stored_tensor.h"
#include "weft/io/views/span_plan.h"
#include "weft/quant/formats/gguf_blocks.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/panels/gguf_panels.h"
#include "weft/quant/torch_dtype.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;

at::Tensor read_stored(const TensorFile& file, const ShardRecipe& recipe, ReadStats* stats) {
  at::Tensor stored = new_stored(file, recipe);
  read_shard(file, recipe, bytes_of(stored), stats);
  return stored;
}

// The same in memory that the next chunk will have.
std::span<std::byte> read_bytes(const TensorFile& file, const ShardRecipe& recipe,
                                core::ReadBuffer& buffer, ReadStats* stats) {
  const std::span<std::byte> bytes = buffer.first(recipe.result.num_bytes());
  read_shard(file, recipe, bytes, stats);
  if (stats != nullptr) {
    stats->peak_host_bytes = std::max<uint64_t>(stats->peak_host_bytes, bytes.size());
  }
  return bytes;
}

at::Tensor read_chunk(const TensorFile& file, const ShardRecipe& recipe, core::ReadBuffer& buffer,
                      ReadStats* stats) {
  const StoredType type = stored_type(file, recipe.result);
  return at::from_blob(read_bytes(file, recipe, buffer, stats).data(), type.shape, type.type);
}

// Cuts away what was read beside the slice, of a chunk of rows that are all wanted.
quant::AffineTensor trimmed_columns(const quant::AffineTensor& read, const MatrixSource& matrix) {
  const auto columns = within(matrix.wanted.columns, matrix.format.in_unit);
  return shard::total_length(columns) == read.in_features()
             ? read
             : quant::select_affine(read, 1, columns);
}

// Whether the system reads no page for the whole span that it would not read for the pieces.
bool fills_its_pages(const ReadSpan& span) {
  constexpr uint64_t kLeastPage = 4096;
  uint64_t end = 0;
  for (const SpanPiece& piece : span.pieces) {
    if (piece.offset_in_span >= end + kLeastPage) return false;
    end = std::max(end, piece.offset_in_span + piece.num_bytes);
  }
  return true;
}

// Has the system read what comes next from the disk while this thread decodes.
void read_ahead(const TensorFile& file, const View& view) {
  for_each_span(std::span(&view, 1), SpanOptions(), [&](const ReadSpan& span) {
    if (fills_its_pages(span)) file.will_need(span.file, span.offset, span.num_bytes);
  });
}

// Visits the rows in chunks, so that what is read and not yet decoded stays small: each chunk's
// first row and recipe. What an eager function makes can't be had in pieces.
template <class Visit>
void for_each_chunk(const TensorFile& file, const ShardRecipe& recipe, const Visit& visit) {
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
    const int64_t next = start + step;
    if (next < rows) read_ahead(file, view.narrow(0, next, std::min(step, rows - next)));
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

LoadedMatrix load_blocks(const MatrixRead& read) {
  const MatrixSource& matrix = read.matrix;
  const View& view = matrix.parts[0]->result;
  quant::AffineTensor whole;
  core::ReadBuffer buffer;
  for_each_chunk(read.file, *matrix.parts[0], [&](int64_t start, const ShardRecipe& chunk) {
    at::Tensor stored = read_chunk(read.file, chunk, buffer, read.stats);
    const View& rows = chunk.result;
    const quant::AffineTensor part = trimmed_columns(
        quant::from_gguf_blocks(view.dtype(), bytes_of(stored), rows.size(0), rows.size(1)),
        matrix);
    whole.bits = part.bits;
    whole.group_size = part.group_size;
    place_rows(whole.packed, part.packed, start, view.size(0));
    place_rows(whole.scales, part.scales, start, view.size(0));
    place_rows(whole.offsets, part.offsets, start, view.size(0));
  });
  return quant::QuantizedMatrix(std::move(whole));
}

// The shard in `dtype`. What is stored in that type is read straight to its place.
at::Tensor load_floating(const TensorFile& file, const ShardRecipe& recipe, at::ScalarType dtype,
                         ReadStats* stats) {
  const View& view = recipe.result;
  const auto stored_type = quant::torch_dtype(view.dtype());
  check<FormatError>(stored_type && at::isFloatingType(*stored_type), file.path(), ": tensor '",
                     view.tensor_name(), "': type ", info(view.dtype()).name,
                     ", expected F32, F16 or BF16");
  if (*stored_type == dtype || view.num_dims() == 0) {
    return read_stored(file, recipe, stats).to(dtype);
  }
  at::Tensor loaded = quant::large_tensor(view.shape(), dtype);
  core::ReadBuffer buffer;
  for_each_chunk(file, recipe, [&](int64_t start, const ShardRecipe& chunk) {
    const at::Tensor stored = read_chunk(file, chunk, buffer, stats);
    loaded.narrow(0, start, stored.size(0)).copy_(stored);
  });
  return loaded;
}

LoadedMatrix load_dense(const MatrixRead& read) {
  return load_floating(read.file, *read.matrix.parts[0], read.dense_dtype, read.stats);
}

// Of codes whose scales follow from their places in the file: chunks of them become values.
template <class Values>
LoadedMatrix load_placed(const MatrixRead& read, const Values& values) {
  const ShardRecipe& recipe = *read.matrix.parts[0];
  check<core::ConfigError>(recipe.eager_steps.empty(), read.file.path(), ": tensor '",
                           recipe.result.tensor_name(), "': ", read.matrix.format.text,
                           " with scales goes through a function that computes, expected "
                           "functions that cut and reorder; convert the model to bfloat16 first");
  at::Tensor loaded;
  core::ReadBuffer buffer;
  for_each_chunk(read.file, recipe, [&](int64_t start, const ShardRecipe& chunk) {
    const at::Tensor part =
        values.values(chunk.result, read_bytes(read.file, chunk, buffer, read.stats));
    if (!loaded.defined()) {
      loaded = quant::large_tensor({recipe.result.size(0), part.size(1)}, read.dense_dtype);
    }
    loaded.narrow(0, start, part.size(0)).copy_(part);
  });
  return loaded;
}

LoadedMatrix load_scaled_floats(const MatrixRead& read) {
  return load_placed(read, ScaledFloats(read.file, read.matrix.format));
}

LoadedMatrix load_codebook(const MatrixRead& read) {
  const LoadedMatrix loaded = load_placed(read, CodebookValues(read.file, read.matrix.format));
  return trimmed_plain(std::get<at::Tensor>(loaded), read.matrix);
}

// How each format is decoded, in the order of MatrixKind.
struct Decoder {
  MatrixKind kind;
  LoadedMatrix (*load)(const MatrixRead& read);
};
constexpr std::array<Decoder, kNumMatrixKinds> kDecoders = {{
    {MatrixKind::kDense, load_dense},
    {MatrixKind::kGgufBlocks, load_blocks},
    {MatrixKind::kAffine, load_affine},
    {MatrixKind::kMicroscaled, load_microscaled},
    {MatrixKind::kAwq, load_awq},
    {MatrixKind::kGptq, load_gptq},
    {MatrixKind::kScaledFloats, load_scaled_floats},
    {MatrixKind::kScaledIntegers, load_scaled_integers},
    {MatrixKind::kOrderedIntegers, load_ordered_integers},
    {MatrixKind::kCodebook, load_codebook},
    {MatrixKind::kAwqRows, load_awq_rows},
}};
static_assert([] {
  for (size_t i = 0; i < kDecoders.size(); ++i) {
    if (kDecoders[i].kind != static_cast<MatrixKind>(i)) return false;
  }
  return true;
}());

}  // namespace

LoadedMatrix load_matrix(const TensorFile& file, const MatrixSource& matrix,
                         at::ScalarType dense_dtype, ReadStats* stats) {
  const Decoder& decoder = kDecoders[static_cast<size_t>(matrix.format.kind)];
  return decoder.load({file, matrix, dense_dtype, stats});
}

std::optional<quant::PanelMatrix> load_panels(const TensorFile& file, const MatrixSource& matrix,
                                              int64_t activation_bits, ReadStats* stats) {
  if (matrix.format.kind != MatrixKind::kGgufBlocks) return std::nullopt;
  const View& view = matrix.parts[0]->result;
  const auto columns = within(matrix.wanted.columns, matrix.format.in_unit);
  if (shard::total_length(columns) < view.size(1) ||
      !quant::has_gguf_panels(view.dtype(), view.size(1))) {
    return std::nullopt;
  }
  quant::PanelMatrix panels =
      quant::empty_gguf_panels(view.dtype(), view.size(0), view.size(1), activation_bits);
  core::ReadBuffer buffer;
  for_each_chunk(file, *matrix.parts[0], [&](int64_t start, const ShardRecipe& chunk) {
    at::Tensor stored = read_chunk(file, chunk, buffer, stats);
    quant::write_gguf_rows(view.dtype(), bytes_of(stored), start, panels);
  });
  return panels;
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
