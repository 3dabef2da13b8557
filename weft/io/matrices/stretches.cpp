#include "weft/io/matrices/stretches.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "weft/core/error.h"

namespace weft::io {
namespace {

void check_within(const TensorFile& file, const TensorMeta& tensor, const ByteRun& run) {
  const bool is_within = run.file == tensor.file && run.offset >= tensor.offset &&
                         run.offset + run.num_bytes <= tensor.offset + tensor.num_bytes;
  core::check<core::ConfigError>(is_within, file.path(), ": tensor ", core::quote(tensor.name),
                                 ": a rule that takes numbers of other tensors, too, expected this "
                                 "one alone, to which the scales belong");
}

}  // namespace

std::vector<Stretch> stretches(const TensorFile& file, const TensorMeta& tensor, const View& view,
                               int64_t unit_bytes) {
  std::vector<Stretch> all;
  int64_t place = 0;
  view.for_each_run([&](const ByteRun& run) {
    check_within(file, tensor, run);
    auto start = static_cast<int64_t>(run.offset - tensor.offset);
    const int64_t end = start + static_cast<int64_t>(run.num_bytes);
    while (start < end) {
      const int64_t length = std::min(unit_bytes - start % unit_bytes, end - start);
      all.push_back({place, start, length});
      place += length;
      start += length;
    }
  });
  return all;
}

void for_each_stretch(std::span<const Stretch> all,
                      const std::function<void(const Stretch&)>& visit) {
  if (all.empty()) return;
  constexpr int64_t kLeastBytes = 1 << 15;
  const auto count = static_cast<int64_t>(all.size());
  const int64_t bytes = all.back().place + all.back().num_bytes;
  at::parallel_for(0, count, std::max<int64_t>(1, count * kLeastBytes / bytes),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) visit(all[static_cast<size_t>(i)]);
                   });
}

}  // namespace weft::io
