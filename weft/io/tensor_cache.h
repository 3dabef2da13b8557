#pragma once

#include <memory>
#include <string>

#include "weft/core/json.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// Opens the files that a tensor-cache.json (ndarray-cache.json in older models) of TVM or MLC-LLM
/// lists: raw bytes without headers, one tensor after another. `cache` is its JSON, already
/// parsed, `path` becomes the source's path. A record "f32-to-bf16" is a tensor of BF16, as its
/// bytes are. File names must be plain names in the JSON's folder, and the tensors must cover each
/// file exactly. The md5 sums are not looked at. Throws FormatError or IoError.
std::shared_ptr<const TensorFile> open_tensor_cache(const std::string& path,
                                                    const std::string& cache_path,
                                                    const core::Json& cache);

}  // namespace weft::io
