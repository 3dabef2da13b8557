#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft::testing {

/// The bytes of a safetensors file: length (that of `header` unless given), header, data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data = "",
                                     std::optional<uint64_t> length = std::nullopt) {
  const uint64_t size = length.value_or(header.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

/// "{body}", for a header.
inline std::string braces(const std::string& body) {
  std::string text = "{";
  return text.append(body).append("}");
}

/// `"name":{"dtype":…,"shape":…,"data_offsets":…}` of texts.
inline std::string tensor_json(const std::string& name, const std::string& dtype,
                               const std::string& shape, const std::string& offsets) {
  std::string text = "\"";
  text.append(name).append("\":{\"dtype\":\"").append(dtype).append("\",\"shape\":");
  return text.append(shape).append(",\"data_offsets\":").append(offsets).append("}");
}

}  // namespace weft::testing
