#include "weft/io/load_parts.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"
#include "weft/io/matrices/zero_points.h"
#include "weft/io/matrix_rules.h"
#include "weft/io/stored_tensor.h"
#include "weft/quant/integers/awq_gptq.h"
#include "weft/quant/integers/ordered_integers.h"
#include "weft/quant/integers/scaled_integers.h"

namespace weft::io {
namespace {

using shard::Range;

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

// Those that are repacked: the stored parts and the result are in memory together for a moment.
std::vector<at::Tensor> load_parts_to_repack(const MatrixRead& read) {
  std::vector<at::Tensor> parts = load_parts(read);
  if (read.stats == nullptr) return parts;
  uint64_t bytes = 0;
  for (const at::Tensor& part : parts) bytes += part.nbytes();
  read.stats->peak_host_bytes = std::max(read.stats->peak_host_bytes, bytes);
  return parts;
}

// The ranges of dim 0 (rows) or 1 (columns) of what was read that are wanted.
std::vector<Range> wanted_of(const MatrixSource& matrix, int64_t dim) {
  return dim == 0 ? within(matrix.wanted.rows, matrix.format.out_unit)
                  : within(matrix.wanted.columns, matrix.format.in_unit);
}

quant::QuantizedMatrix trimmed(quant::QuantizedMatrix read, const MatrixSource& matrix) {
  const auto rows = wanted_of(matrix, 0), columns = wanted_of(matrix, 1);
  if (shard::total_length(rows) < quant::out_features(read)) read = quant::select(read, 0, rows);
  if (shard::total_length(columns) < quant::in_features(read)) {
    read = quant::select(read, 1, columns);
  }
  return read;
}

quant::GptqOptions gptq_options(const MatrixFormat& format) {
  return {format.bits, format.stores_zero_less_one, format.is_symmetric};
}

// Begins messages about which quant groups columns belong to.
std::string where_order(const MatrixRead& read) {
  return core::join(read.file.path(), ": tensor ",
                    core::quote(read.matrix.format.parts.back().tensor));
}

// bitsandbytes had orders of its own for several GPUs, and says in a byte which it is.
void check_row_order(const MatrixRead& read) {
  constexpr const char* kOrders[] = {"row", "col32", "col_turing", "col_ampere"};
  const TensorMeta& tensor = read.file.require(read.matrix.format.beside.front());
  const std::string where =
      core::join(read.file.path(), ": tensor ", core::quote(tensor.name), ": ");
  core::check<core::FormatError>(tensor.dtype == Dtype::kU8 && tensor.num_bytes == 1, where,
                                 info(tensor.dtype).name, " of ", tensor.num_bytes,
                                 " bytes, expected U8 of one");
  std::array<std::byte, 1> order{};
  read_shard(read.file, {{}, View::of(tensor)}, order, read.stats);
  const auto code = std::to_integer<size_t>(order[0]);
  core::check<core::ConfigError>(code == 0, where, "order ", code, " of numbers (",
                                 code < std::size(kOrders) ? kOrders[code] : "unknown",
                                 ") is not supported; supported: 0 (row); save the model anew with "
                                 "a later bitsandbytes");
}

at::Tensor zeros_beside(const MatrixRead& read) {
  return zeros_of_scales(read.file, read.matrix.format, *read.matrix.parts[1], read.stats);
}

}  // namespace

at::Tensor trimmed_plain(at::Tensor read, const MatrixSource& matrix) {
  for (const int64_t dim : {0, 1}) {
    const auto wanted = wanted_of(matrix, dim);
    if (shard::total_length(wanted) == read.size(dim)) continue;
    std::vector<at::Tensor> pieces;
    for (const Range& range : wanted) pieces.push_back(read.narrow(dim, range.start, range.length));
    read = at::cat(pieces, dim);
  }
  return read;
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

LoadedMatrix load_awq(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts_to_repack(read);
  return trimmed(quant::from_awq(parts[0], parts[1], parts[2]), read.matrix);
}

LoadedMatrix load_awq_rows(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts(read);
  const MatrixFormat& format = read.matrix.format;
  // Zeros and scales are those of all quant groups; these are of the columns that were read.
  std::vector<int64_t> groups;
  for (const Range& range : covering(read.matrix.wanted.columns, format.in_unit)) {
    for (int64_t column = range.start; column < range.end(); column += format.in_unit) {
      groups.push_back(column / format.group_size);
    }
  }
  return trimmed(quant::from_awq_rows(parts[0], parts[1], parts[2], groups), read.matrix);
}

LoadedMatrix load_gptq(const MatrixRead& read) {
  const std::vector<at::Tensor> parts = load_parts_to_repack(read);
  const MatrixFormat& format = read.matrix.format;
  constexpr size_t kGroupIndex = 3;
  if (parts.size() > kGroupIndex) {
    const auto columns = covering(read.matrix.wanted.columns, format.in_unit);
    quant::check_trivial_g_idx(parts[kGroupIndex], columns.front().start, format.group_size,
                               where_order(read));
  }
  return trimmed(quant::from_gptq(parts[0], parts[1], parts[2], gptq_options(format)), read.matrix);
}

LoadedMatrix load_scaled_integers(const MatrixRead& read) {
  const MatrixFormat& format = read.matrix.format;
  const bool is_bitsandbytes = format.scheme == "bitsandbytes";
  if (is_bitsandbytes && !format.beside.empty()) check_row_order(read);
  std::vector<at::Tensor> parts = load_parts_to_repack(read);
  parts.resize(3);
  // A row's largest number, which became 127.
  if (is_bitsandbytes) {
    parts[1] /= 127;
  } else if (!format.beside.empty()) {
    parts[2] = zeros_beside(read);
  }
  return trimmed(
      quant::from_scaled_integers({format.bits, parts[0], parts[1], parts[2]}, format.in_unit),
      read.matrix);
}

LoadedMatrix load_ordered_integers(const MatrixRead& read) {
  std::vector<at::Tensor> parts = load_parts_to_repack(read);
  const MatrixFormat& format = read.matrix.format;
  const at::Tensor groups = std::exchange(parts.back(), {});
  if (!format.beside.empty()) parts[2] = zeros_beside(read);
  quant::OrderedIntegers ordered =
      format.scheme == "gptq"
          ? quant::ordered_gptq(parts[0], parts[1], parts[2], gptq_options(format))
          : quant::ordered_integers({format.bits, parts[0], parts[1], parts[2]});
  ordered.groups = groups;
  return trimmed_plain(quant::plain_numbers(ordered, read.dense_dtype, where_order(read)),
                       read.matrix);
}

}  // namespace weft::io
