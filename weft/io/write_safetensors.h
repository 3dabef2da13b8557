#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/io/dtype.h"

namespace weft::io {

/// One tensor to be written. `bytes` are little-endian, in C order, and stay the caller's.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes a safetensors file, byte for byte as the format's own library does (tensors by type from
/// wide to narrow, then by name; header padded to 8 bytes), with metadata in the order of its keys.
/// The path shows the old file or the whole new one at any moment: see core::AtomicFile.
/// Throws ShapeError if bytes and shape disagree, ConfigError for names that can't stand in a file
/// (twice, reserved, not UTF-8) and types that safetensors lacks, IoError when the system refuses
/// (with the path, and the bytes needed and free when the disk is full).
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace weft::io
