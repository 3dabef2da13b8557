#pragma once

#include <memory>
#include <string>

#include "weft/io/tensor_file.h"

namespace weft::io {

/// Opens the files that a Hugging Face *.safetensors.index.json at `index_path` lists (or a
/// tensor-cache.json: see tensor_cache.h), and checks both ways that they hold just the tensors
/// listed. File names must be plain names in the index's folder. `path` becomes the source's path.
/// A wrong total_size is only logged, because published models have it. Throws FormatError or
/// IoError.
std::shared_ptr<const TensorFile> open_index(const std::string& path,
                                             const std::string& index_path);

/// Opens a GGUF file; if its keys say that it is part of a split model, all parts, which are found
/// by the name (…-00001-of-00003.gguf). `path` becomes the source's path. Throws FormatError or
/// IoError.
std::shared_ptr<const TensorFile> open_file(const std::string& path, const std::string& file_path);

/// The file in `folder` that open() opens: see TensorFile::open. Throws FormatError with what was
/// found if there is none or a choice.
std::string find_model_file(const std::string& folder);

}  // namespace weft::io
