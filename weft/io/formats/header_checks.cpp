#include "weft/io/formats/header_checks.h"

#include <algorithm>
#include <string_view>

#include "weft/core/checked.h"
#include "weft/core/error.h"

namespace weft::io {

using core::fail;
using core::FormatError;

std::optional<uint64_t> tensor_bytes(Dtype dtype, const std::vector<int64_t>& shape) {
  const DtypeInfo& type = info(dtype);
  std::optional<uint64_t> elements = 1;
  for (const int64_t dim : shape) {
    elements = core::checked_mul(*elements, static_cast<uint64_t>(dim));
    if (!elements || *elements > INT64_MAX) return std::nullopt;
  }
  const auto block_elements = static_cast<uint64_t>(type.block_elements);
  const int64_t last = shape.empty() ? 1 : shape.back();
  if (last % type.block_elements != 0) return std::nullopt;
  const auto bytes =
      core::checked_mul(*elements / block_elements, static_cast<uint64_t>(type.block_bytes));
  if (!bytes || *bytes > INT64_MAX) return std::nullopt;
  return bytes;
}

void check_unique_names(const std::string& path, const std::vector<TensorMeta>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorMeta& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    fail<FormatError>(path, ": tensor ", core::quote(*twice),
                      " is listed twice, expected unique names; convert the file again");
  }
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const unsigned char lead = byte(0);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || length > text.size() - at) return false;
    for (size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xC0) != 0x80) return false;
    }
    // After these leads only part of the second bytes is legal: no longer forms, no surrogates, at
    // most U+10FFFF.
    if (lead == 0xE0 && byte(1) < 0xA0) return false;
    if (lead == 0xED && byte(1) > 0x9F) return false;
    if (lead == 0xF0 && byte(1) < 0x90) return false;
    if (lead == 0xF4 && byte(1) > 0x8F) return false;
    at += length;
  }
  return true;
}

void check_file_name(const std::string& where, const std::string& name) {
  const bool is_plain =
      !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
      name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  if (!is_plain) {
    fail<FormatError>(where, ": file name ", core::quote(name),
                      ", expected a plain name in the index's folder; correct the index");
  }
}

void check_tensor_name(const std::string& where, const std::string& name) {
  if (name.find('\0') != std::string::npos) {
    fail<FormatError>(where, ": tensor ", core::quote(name),
                      ": a NUL byte in the name; convert the file again");
  }
  if (!is_utf8(name)) {
    fail<FormatError>(where, ": tensor ", core::quote(name),
                      ": the name is not UTF-8; convert the file again");
  }
}

}  // namespace weft::io
