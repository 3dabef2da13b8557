#include "weft/io/matrices/scaled_floats.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/io/load_tensor.h"
#include "weft/quant/formats/scaled_floats.h"

namespace weft::io {

using core::check;

ScaledFloats::ScaledFloats(const TensorFile& file, const MatrixFormat& format)
    : file_(file),
      tensor_(file.require(format.parts[0].tensor)),
      grid_(format.scales),
      rows_(tensor_.shape[tensor_.shape.size() - 2]),
      columns_(tensor_.shape.back()),
      scales_(load_tensor(file, grid_.tensor, at::kFloat).contiguous()) {
  check<core::FormatError>(grid_.per_out > 0 && grid_.per_in > 0, file.path(), ": tensor ",
                           core::quote(grid_.tensor), ": ", grid_.out_count, " by ", grid_.in_count,
                           " scales of a matrix of [", rows_, ", ", columns_,
                           "], expected config.json to say how large their blocks are");
}

at::Tensor ScaledFloats::values(const View& view, std::span<const std::byte> codes) const {
  at::Tensor made = at::empty(view.shape(), at::kFloat);
  const std::span bytes(reinterpret_cast<const uint8_t*>(codes.data()), codes.size());
  auto* const to = made.mutable_data_ptr<float>();
  for_each_stretch(stretches(file_, tensor_, view, columns_),
                   [&](const Stretch& stretch) { write(stretch, bytes, to); });
  return made;
}

void ScaledFloats::write(const Stretch& stretch, std::span<const uint8_t> codes, float* to) const {
  // The rows of a stack are counted through.
  const int64_t matrix = stretch.start / columns_ / rows_, row = stretch.start / columns_ % rows_;
  const int64_t first = (matrix * grid_.out_count + row / grid_.per_out) * grid_.in_count;
  const auto* const scales = scales_.const_data_ptr<float>() + first;
  int64_t place = stretch.place, column = stretch.start % columns_;
  const int64_t end = column + stretch.num_bytes;
  while (column < end) {
    const int64_t block = column / grid_.per_in;
    const int64_t length = std::min((block + 1) * grid_.per_in, end) - column;
    quant::scale_e4m3(codes.subspan(static_cast<size_t>(place), static_cast<size_t>(length)),
                      scales[block], to + place);
    place += length;
    column += length;
  }
}

}  // namespace weft::io
