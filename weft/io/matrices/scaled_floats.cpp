#include "weft/io/matrices/scaled_floats.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/load_tensor.h"
#include "weft/quant/formats/scaled_floats.h"

namespace weft::io {

using core::check;

// Elements of one row of the file that stand together in the view, too.
struct ScaledFloats::Strip {
  // In the view, counted row after row.
  int64_t place;
  // In the file; the rows of a stack are counted through.
  int64_t row;
  int64_t column;
  int64_t length;
};

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

void ScaledFloats::check_within(const ByteRun& run) const {
  const bool is_within = run.file == tensor_.file && run.offset >= tensor_.offset &&
                         run.offset + run.num_bytes <= tensor_.offset + tensor_.num_bytes;
  check<core::ConfigError>(is_within, file_.path(), ": tensor ", core::quote(tensor_.name),
                           ": a rule that takes numbers of other tensors, too, expected this one "
                           "alone, to which the scales belong");
}

at::Tensor ScaledFloats::values(const View& view, std::span<const std::byte> codes) const {
  std::vector<Strip> strips;
  int64_t place = 0;
  view.for_each_run([&](const ByteRun& run) {
    check_within(run);
    auto element = static_cast<int64_t>(run.offset - tensor_.offset);
    const int64_t end = element + static_cast<int64_t>(run.num_bytes);
    while (element < end) {
      const int64_t row = element / columns_, column = element % columns_;
      const int64_t length = std::min(columns_ - column, end - element);
      strips.push_back({place, row, column, length});
      place += length;
      element += length;
    }
  });
  at::Tensor made = at::empty(view.shape(), at::kFloat);
  const std::span bytes(reinterpret_cast<const uint8_t*>(codes.data()), codes.size());
  auto* const to = made.mutable_data_ptr<float>();
  constexpr int64_t kLeastWork = 1 << 15;
  const auto num_strips = static_cast<int64_t>(strips.size());
  const int64_t grain = std::max<int64_t>(1, num_strips * kLeastWork / std::max<int64_t>(1, place));
  at::parallel_for(0, num_strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) write(strips[static_cast<size_t>(i)], bytes, to);
  });
  return made;
}

void ScaledFloats::write(const Strip& strip, std::span<const uint8_t> codes, float* to) const {
  const int64_t matrix = strip.row / rows_, row = strip.row % rows_;
  const int64_t first = (matrix * grid_.out_count + row / grid_.per_out) * grid_.in_count;
  const auto* const scales = scales_.const_data_ptr<float>() + first;
  const int64_t end = strip.column + strip.length;
  int64_t place = strip.place;
  for (int64_t column = strip.column; column < end;) {
    const int64_t block = column / grid_.per_in;
    const int64_t length = std::min((block + 1) * grid_.per_in, end) - column;
    quant::scale_e4m3(codes.subspan(static_cast<size_t>(place), static_cast<size_t>(length)),
                      scales[block], to + place);
    place += length;
    column += length;
  }
}

}  // namespace weft::io
