#include "weft/io/load_tensor.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/memory/new_memory.h"
#include "weft/io/matrices/scaled_floats.h"
#include "weft/io/matrix_rules.h"
#include "weft/io/views/span_plan.h"
#include "weft/quant/formats/awq_gptq.h"
#include "weft/quant/formats/gguf_blocks.h"
#include "weft/quant/formats/scaled_integers.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/panels/gguf_panels.h"
#include "weft/quant/torch_dtype.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using shard::Range;

std::span<std::byte> bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// What load_matrix was asked for.
struct MatrixRead {
  const TensorFile& file;
  const MatrixSource& matrix;
  at::ScalarType dense_dtype;
  ReadStats* stats;
};

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
  const auto known = quant::torch_dtype(view.dtype());
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

LoadedMatrix load_scaled_floats(const MatrixRead& read) {
  const ShardRecipe& recipe = *read.matrix.parts[0];
  check<core::ConfigError>(recipe.eager_steps.empty(), read.file.path(), ": tensor '",
                           recipe.result.tensor_name(),
                           "': F8_E4M3 with scales goes through a function that computes, expected "
                           "functions that cut and reorder; convert the model to bfloat16 first");
  const ScaledFloats numbers(read.file, read.matrix.format);
  at::Tensor loaded = quant::large_tensor(recipe.result.shape(), read.dense_dtype);
  core::ReadBuffer buffer;
  for_each_chunk(read.file, recipe, [&](int64_t start, const ShardRecipe& chunk) {
    const at::Tensor values =
        numbers.values(chunk.result, read_bytes(read.file, chunk, buffer, read.stats));
    loaded.narrow(0, start, values.size(0)).copy_(values);
  });
  return loaded;
}

std::vector<at::Tensor> load_parts(const MatrixRead& read) {
  std::vector<at::Tensor> parts;
  std::vector<PlacedShard> shards;
  for (const ShardRecipe* part : read.matrix.parts) {
    parts.push_back(new_stored(read.file, *part));
    shards.push_back({part, bytes_of(parts.back())});
  }
  read_shards(read.file, shards, read.stats);
  return parts;
}

LoadedMatrix load_affine(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts(read);
  const MatrixFormat& format = read.matrix.format;
  quant::AffineTensor loaded;
  loaded.bits = format.bits;
  loaded.group_size = format.group_size;
  loaded.packed = parts[0];
  loaded.scales = parts[1];
  loaded.offsets = parts[2];
  return trimmed(std::move(loaded), read.matrix);
}

LoadedMatrix load_microscaled(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts(read);
  const MatrixFormat& format = read.matrix.format;
  quant::MicroscaledTensor loaded;
  loaded.mode = quant::parse_mode(format.scheme, read.file.path());
  loaded.group_size = format.group_size;
  loaded.packed = parts[0];
  loaded.scales = parts[1];
  return trimmed(std::move(loaded), read.matrix);
}

// These are repacked, so the stored parts and the result are in memory together for a moment.
void note_parts(ReadStats* stats, const std::vector<at::Tensor>& parts) {
  if (stats == nullptr) return;
  uint64_t bytes = 0;
  for (const at::Tensor& part : parts) bytes += part.nbytes();
  stats->peak_host_bytes = std::max(stats->peak_host_bytes, bytes);
}

LoadedMatrix load_awq(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts(read);
  note_parts(read.stats, parts);
  return trimmed(quant::from_awq(parts[0], parts[1], parts[2]), read.matrix);
}

LoadedMatrix load_gptq(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts(read);
  const MatrixFormat& format = read.matrix.format;
  note_parts(read.stats, parts);
  quant::GptqOptions options;
  options.bits = format.bits;
  options.stores_zero_less_one = format.stores_zero_less_one;
  options.is_symmetric = format.is_symmetric;
  constexpr size_t kGroupIndex = 3;
  if (parts.size() > kGroupIndex) {
    const auto columns = covering(read.matrix.wanted.columns, format.in_unit);
    quant::check_trivial_g_idx(
        parts[kGroupIndex], columns.front().start, format.group_size,
        core::join(read.file.path(), ": tensor '", format.parts[kGroupIndex].tensor, "'"));
  }
  return trimmed(quant::from_gptq(parts[0], parts[1], parts[2], options), read.matrix);
}

LoadedMatrix load_scaled_integers(const MatrixRead& read) {
  std::vector<at::Tensor> parts = load_parts(read);
  note_parts(read.stats, parts);
  parts.resize(3);
  const MatrixFormat& format = read.matrix.format;
  return trimmed(
      quant::from_scaled_integers({format.bits, parts[0], parts[1], parts[2]}, format.in_unit),
      read.matrix);
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
  if (!is_all(columns, view.size(1)) || !quant::has_gguf_panels(view.dtype(), view.size(1))) {
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
