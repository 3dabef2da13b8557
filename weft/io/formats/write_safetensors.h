#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/io/dtype.h"

namespace weft::io {

/// A tensor that will be written: name, type and shape, without its bytes.
struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
};

/// What a safetensors file of given tensors begins with, and where their bytes go.
struct SafetensorsHead {
  /// The length and the header.
  std::string bytes;
  /// Positions of the tensors in the file's order: by type from wide to narrow, then by name.
  std::vector<size_t> order;
  /// By position: where in the file a tensor begins.
  std::vector<uint64_t> offsets;
  /// Of the whole file.
  uint64_t num_bytes = 0;
};

/// Lays a file out, byte for byte as the format's own library does (header padded to 8 bytes), with
/// metadata in the order of its keys. `path` begins messages. Throws ShapeError for a shape that
/// can't be, ConfigError for names that a file can't hold (twice, reserved, not UTF-8) and
/// types that safetensors lacks.
SafetensorsHead safetensors_head(const std::string& path, std::span<const TensorSpec> tensors,
                                 const std::map<std::string, std::string>& metadata);

/// One tensor to be written. `bytes` are little-endian, in C order, and stay the caller's.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes a safetensors file, laid out by safetensors_head. The path shows the old file or the
/// whole new one at any moment: see core::AtomicFile. Throws as safetensors_head, ShapeError if
/// bytes and shape disagree, IoError when the system refuses (with the path, and the bytes needed
/// and free when the disk is full).
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace weft::io
