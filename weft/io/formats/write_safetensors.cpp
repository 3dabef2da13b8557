#include "weft/io/formats/write_safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/formats/safetensors.h"

namespace weft::io {

using core::check;
using core::ConfigError;
using core::fail;
using core::quote;
using core::ShapeError;

namespace {

// The order of types in the format's own library, which writes the last of them first.
constexpr std::array kOrder = {Dtype::kBool,   Dtype::kU8,     Dtype::kI8,  Dtype::kF8E5M2,
                               Dtype::kF8E4M3, Dtype::kF8E8M0, Dtype::kI16, Dtype::kU16,
                               Dtype::kF16,    Dtype::kBF16,   Dtype::kI32, Dtype::kU32,
                               Dtype::kF32,    Dtype::kF64,    Dtype::kI64, Dtype::kU64};

size_t order_of(Dtype dtype) {
  return static_cast<size_t>(std::find(kOrder.begin(), kOrder.end(), dtype) - kOrder.begin());
}

std::string where_of(const std::string& path, const TensorSpec& tensor) {
  return path + ": tensor " + quote(tensor.name);
}

uint64_t checked_bytes(const std::string& path, const TensorSpec& tensor) {
  const std::string where = where_of(path, tensor);
  check<ConfigError>(order_of(tensor.dtype) < kOrder.size(), where, ": ", info(tensor.dtype).name,
                     ", expected a type that safetensors has; convert it first");
  const bool is_legal =
      tensor.name != "__metadata__" && tensor.name.find('\0') == std::string::npos;
  check<ConfigError>(is_legal, where, ": a reserved name; rename it");
  const bool is_shape =
      std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t dim) { return dim >= 0; });
  const auto bytes = is_shape ? tensor_bytes(tensor.dtype, tensor.shape) : std::nullopt;
  check<ShapeError>(bytes.has_value(), where, ": ", info(tensor.dtype).name, " ",
                    core::list_text(tensor.shape), ", expected a shape of fewer than 2^63 bytes");
  return *bytes;
}

std::vector<size_t> sorted(const std::string& path, std::span<const TensorSpec> tensors) {
  std::vector<size_t> order;
  std::set<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      fail<ConfigError>(path, ": tensor ", quote(tensor.name), " is given twice; rename one");
    }
    order.push_back(order.size());
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t a_type = order_of(tensors[a].dtype);
    const size_t b_type = order_of(tensors[b].dtype);
    return a_type != b_type ? a_type > b_type : tensors[a].name < tensors[b].name;
  });
  return order;
}

// `sizes` in bytes, by position as `order`.
std::string header_text(const std::string& path, std::span<const TensorSpec> tensors,
                        const std::vector<size_t>& order, const std::vector<uint64_t>& sizes,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto append = [&](const std::string& key, const nlohmann::ordered_json& value) {
    text += text.size() > 1 ? "," : "";
    text += nlohmann::ordered_json(key).dump() + ":" + value.dump();
  };
  try {
    if (!metadata.empty()) append("__metadata__", metadata);
    uint64_t offset = 0;
    for (const size_t index : order) {
      const uint64_t end = offset + sizes[index];
      append(tensors[index].name, {{"dtype", info(tensors[index].dtype).name},
                                   {"shape", tensors[index].shape},
                                   {"data_offsets", {offset, end}}});
      offset = end;
    }
  } catch (const nlohmann::json::type_error&) {
    fail<ConfigError>(path, ": a tensor's name or a metadata text is not UTF-8; rename it");
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check<ConfigError>(text.size() <= kMaxSafetensorsHeader, path, ": header of ", text.size(),
                     " bytes, the format allows ", kMaxSafetensorsHeader, "; write several files");
  return text;
}

}  // namespace

SafetensorsHead safetensors_head(const std::string& path, std::span<const TensorSpec> tensors,
                                 const std::map<std::string, std::string>& metadata) {
  SafetensorsHead head;
  std::vector<uint64_t> sizes;
  for (const TensorSpec& tensor : tensors) sizes.push_back(checked_bytes(path, tensor));
  head.order = sorted(path, tensors);
  const std::string text = header_text(path, tensors, head.order, sizes, metadata);
  const uint64_t length = text.size();
  head.bytes.assign(reinterpret_cast<const char*>(&length), sizeof length);
  head.bytes += text;
  head.num_bytes = head.bytes.size();
  head.offsets.resize(tensors.size());
  for (const size_t index : head.order) {
    head.offsets[index] = head.num_bytes;
    check<ShapeError>(!__builtin_add_overflow(head.num_bytes, sizes[index], &head.num_bytes), path,
                      ": more than 2^64 bytes; write several files");
  }
  return head;
}

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorToWrite& tensor : tensors) {
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    const uint64_t bytes = checked_bytes(path, specs.back());
    check<ShapeError>(bytes == tensor.bytes.size(), where_of(path, specs.back()), ": ",
                      tensor.bytes.size(), " bytes for ", info(tensor.dtype).name, " ",
                      core::list_text(tensor.shape), ", expected ", bytes);
  }
  const SafetensorsHead head = safetensors_head(path, specs, metadata);
  core::AtomicFile file(path, head.num_bytes);
  file.write(std::as_bytes(std::span(head.bytes)));
  for (const size_t index : head.order) file.write(tensors[index].bytes);
  file.commit();
}

}  // namespace weft::io
