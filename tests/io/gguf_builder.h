#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/formats/gguf_values.h"

namespace weft::testing {

/// The bytes of a number as they lie in memory (little-endian).
template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A GGUF string: length and bytes.
inline std::string gguf_text(const std::string& text) { return raw<uint64_t>(text.size()) + text; }

/// A key with a value whose bytes are given.
inline std::string gguf_key(const std::string& key, io::GgufType type, const std::string& value) {
  return gguf_text(key) + raw(static_cast<uint32_t>(type)) + value;
}

/// The value bytes of an array whose items' bytes are given.
inline std::string gguf_array(io::GgufType type, uint64_t count, const std::string& items) {
  return raw(static_cast<uint32_t>(type)) + raw(count) + items;
}

/// A tensor; what is not set is filled in rightly.
struct GgufTensor {
  std::string name;
  /// Fastest dimension first, as the file has it.
  std::vector<uint64_t> dims;
  uint32_t type = 0;
  std::string data;
  std::optional<uint64_t> offset = std::nullopt;
  std::optional<uint32_t> num_dims = std::nullopt;
};

/// Builds the bytes of a GGUF file, right ones or wrong ones.
struct GgufBuilder {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::optional<uint64_t> num_keys;
  std::optional<uint64_t> num_tensors;
  std::vector<std::string> keys;
  std::vector<GgufTensor> tensors;

  /// The header without padding.
  std::string header() const {
    std::string out = magic + raw(version) + raw<uint64_t>(num_tensors.value_or(tensors.size())) +
                      raw<uint64_t>(num_keys.value_or(keys.size()));
    for (const std::string& key : keys) out += key;
    uint64_t offset = 0;
    for (const GgufTensor& tensor : tensors) {
      out += gguf_text(tensor.name);
      out += raw(tensor.num_dims.value_or(static_cast<uint32_t>(tensor.dims.size())));
      for (const uint64_t dim : tensor.dims) out += raw(dim);
      out += raw(tensor.type) + raw(tensor.offset.value_or(offset));
      offset += padded(tensor.data.size());
    }
    return out;
  }

  /// The whole file.
  std::string build() const {
    std::string out = header();
    out.resize(padded(out.size()), '\0');
    for (const GgufTensor& tensor : tensors) {
      out += tensor.data;
      out.resize(out.size() + padded(tensor.data.size()) - tensor.data.size(), '\0');
    }
    return out;
  }

  uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
};

inline constexpr uint32_t kF32 = 0;
inline constexpr uint32_t kQ8_0 = 8;

inline std::string alignment_key(uint32_t alignment) {
  return gguf_key("general.alignment", io::GgufType::kU32, raw(alignment));
}

inline std::string f32(size_t count) { return std::string(4 * count, 'f'); }

/// A file with one tensor.
inline std::string one(const GgufTensor& tensor) {
  GgufBuilder builder;
  builder.tensors = {tensor};
  return builder.build();
}

/// A file with two tensors of 4 floats, the second with this offset.
inline std::string second_at(uint64_t offset) {
  GgufBuilder builder;
  builder.tensors = {{"a", {4}, kF32, f32(4)}, {"b", {4}, kF32, f32(4), offset}};
  return builder.build();
}

}  // namespace weft::testing
