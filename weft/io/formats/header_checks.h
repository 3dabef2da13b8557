#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/io/tensor_file.h"

namespace weft::io {

/// Bytes of a tensor of `shape` and `dtype`, or nothing when a product does not fit in 63 bits or
/// the last dimension is not whole blocks.
std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape);

/// Throws FormatError, naming the first, unless all tensors' names differ. No quadratic scan.
void check_unique_names(const std::string& path, const std::vector<TensorMeta>& tensors);

/// Whether `text` is UTF-8 (RFC 3629: shortest forms only, no surrogates).
bool is_utf8(std::string_view text);

/// Throws FormatError if a name is not UTF-8 or holds a NUL byte, which C programs would read as
/// its end.
void check_tensor_name(const std::string& where, const std::string& name);

/// Throws FormatError unless `name`, which a file names, is a plain name of a file in the same
/// folder: it must not be able to reach other files.
void check_file_name(const std::string& where, const std::string& name);

}  // namespace weft::io
