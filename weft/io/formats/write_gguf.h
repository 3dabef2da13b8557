#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "weft/core/files/atomic_file.h"
#include "weft/core/hash.h"
#include "weft/io/formats/gguf_values.h"
#include "weft/io/formats/write_safetensors.h"

namespace weft::io {

/// A key of a GGUF file to be written. For an array `value` is a vector and `type` that of its
/// items.
struct GgufKey {
  std::string name;
  GgufType type = GgufType::kString;
  MetaValue value;
};

/// Writes a GGUF file, version 3, tensor after tensor: the path shows the old file or the whole new
/// one. Source: the GGUF specification of ggml (docs/gguf.md).
class GgufWriter {
 public:
  /// Writes the header. Shapes are slowest dimension first, as torch has them. Throws ConfigError
  /// for names, types and shapes that a GGUF file can't hold, IoError.
  GgufWriter(const std::string& path, const std::vector<GgufKey>& keys,
             std::vector<TensorSpec> tensors);

  /// The next bytes: of all tensors in the order given, each in as many pieces as wanted. A piece
  /// lies within one tensor. Throws IoError.
  void write(std::span<const std::byte> bytes);
  /// Makes the file visible, opens it as a reader does and compares names, types, shapes and
  /// hashes with what was written. Throws IoError, InternalError if a tensor is missing.
  void commit();

 private:
  std::string path_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> hashes_;
  // Of the tensor that is being written.
  uint64_t done_bytes_ = 0;
  core::HashStream hash_;
  core::AtomicFile file_;
};

}  // namespace weft::io
