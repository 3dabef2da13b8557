#include "weft/io/matrices/zero_points.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "weft/core/error.h"
#include "weft/io/matrices/stored_matrix.h"
#include "weft/io/matrices/stretches.h"
#include "weft/io/stored_tensor.h"
#include "weft/quant/integers/packed_words.h"

namespace weft::io {
namespace {

// Row after row, as the file has scales; behind them the rows that fill the last words.
at::Tensor all_zeros(const TensorFile& file, const MatrixFormat& format, ReadStats* stats) {
  const ShardRecipe whole = {{}, View::of(file.require(format.beside.front()))};
  at::Tensor words = new_stored(file, whole);
  read_shard(file, whole, bytes_of(words), stats);
  const int64_t rows = words.size(0) * kWordBits / format.bits;
  return quant::unpack_words(words.t(), format.bits, rows).t().contiguous();
}

}  // namespace

at::Tensor zeros_of_scales(const TensorFile& file, const MatrixFormat& format,
                           const ShardRecipe& scales, ReadStats* stats) {
  const View& view = scales.result;
  const TensorMeta& tensor = file.require(format.parts[1].tensor);
  core::check<core::ConfigError>(scales.eager_steps.empty(), file.path(), ": tensor ",
                                 core::quote(tensor.name),
                                 ": scales with zero points go through a function that computes, "
                                 "expected functions that cut and reorder; convert the model to "
                                 "bfloat16 first");
  const at::Tensor all = all_zeros(file, format, stats);
  const int64_t each = info(tensor.dtype).block_bytes;
  at::Tensor zeros = at::empty(view.shape(), at::kByte);
  const auto* const from = all.const_data_ptr<uint8_t>();
  auto* const to = zeros.mutable_data_ptr<uint8_t>();
  for (const Stretch& stretch : stretches(file, tensor, view, columns_of(tensor) * each)) {
    std::memcpy(to + stretch.place / each, from + stretch.start / each,
                static_cast<size_t>(stretch.num_bytes / each));
  }
  return zeros;
}

}  // namespace weft::io
