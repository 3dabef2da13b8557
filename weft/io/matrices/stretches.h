#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "weft/io/views/view.h"

namespace weft::io {

/// Bytes of one stored tensor that stand together in a view of it, too, within one of the equal
/// units into which the tensor is divided: a row, a block.
struct Stretch {
  /// The first byte's place in the view, counted row after row.
  int64_t place;
  /// The same in the tensor.
  int64_t start;
  int64_t num_bytes;
};

/// The view's, in its order. Throws ConfigError naming the tensor if the view has elements of
/// others: what belongs to a place in this one is not theirs.
std::vector<Stretch> stretches(const TensorFile& file, const TensorMeta& tensor, const View& view,
                               int64_t unit_bytes);

/// Calls `visit` for each, several at once by libtorch's threads.
void for_each_stretch(std::span<const Stretch> all,
                      const std::function<void(const Stretch&)>& visit);

}  // namespace weft::io
