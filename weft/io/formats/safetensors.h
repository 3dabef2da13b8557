#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// The longest header that the format allows.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// What a safetensors file's header says. Tensors in the order of their data; offsets are from the
/// beginning of the file.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorMeta> tensors;
};

/// Reads and checks the header of a safetensors file, and nothing else of it. Tensors get
/// `file_index`. As strict as the format's own reader (tensors cover the data exactly, once), and
/// stricter: no key may stand twice, no name may hold a NUL byte, dimensions fit in int64.
/// Throws FormatError (path, tensor, byte offset) or IoError.
SafetensorsHeader read_safetensors_header(const core::File& file, size_t file_index);

}  // namespace weft::io
