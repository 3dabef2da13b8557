#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/io/views/read_view.h"

namespace weft::io {

/// A shard in memory as the file stores it.
struct StoredType {
  /// Packed values are bytes, whose rows are the last dim.
  std::vector<int64_t> shape;
  at::ScalarType type = at::kByte;
};

/// Throws FormatError naming the tensor for a type that is neither floating nor quantized.
StoredType stored_type(const TensorFile& file, const View& view);

/// A tensor for the shard, not yet read.
at::Tensor new_stored(const TensorFile& file, const ShardRecipe& recipe);

/// Its memory, to read into.
inline std::span<std::byte> bytes_of(at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace weft::io
