#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// What is accepted of a GGUF header. Far above any published model; below what would exhaust
/// memory.
struct GgufLimits {
  static constexpr uint64_t kMaxHeaderBytes = uint64_t{64} << 20;
  static constexpr uint64_t kMaxKeys = 65'536;
  static constexpr uint64_t kMaxTensors = uint64_t{1} << 24;
  static constexpr uint64_t kMaxKeyBytes = 65'535;
  static constexpr uint64_t kMaxStringBytes = uint64_t{16} << 20;
  static constexpr uint64_t kMaxArrayItems = uint64_t{1} << 24;
  static constexpr uint64_t kMaxNameBytes = 63;
  static constexpr uint32_t kMaxDims = 4;
  static constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
};

/// What a GGUF file's header says. Tensor offsets are from the beginning of the file.
struct GgufHeader {
  std::map<std::string, MetaValue> metadata;
  std::vector<TensorMeta> tensors;
};

/// Reads and checks the header of a GGUF file of version 2 or 3, and nothing else of it. Tensors
/// get `file_index`. Integer values become int64 or uint64, floats double. Source: the GGUF
/// specification, and what ggml itself requires (offsets without gaps). Throws FormatError (path,
/// key or tensor, byte offset) or IoError.
GgufHeader read_gguf_header(const core::File& file, size_t file_index);

}  // namespace weft::io
