#include "weft/io/write_safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/core/atomic_file.h"
#include "weft/core/error.h"
#include "weft/io/header_checks.h"
#include "weft/io/safetensors.h"

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

void check_tensor(const std::string& path, const TensorToWrite& tensor) {
  const std::string where = path + ": tensor " + quote(tensor.name);
  check<ConfigError>(order_of(tensor.dtype) < kOrder.size(), where, ": ", info(tensor.dtype).name,
                     ", expected a type that safetensors has; convert it first");
  const bool is_legal =
      tensor.name != "__metadata__" && tensor.name.find('\0') == std::string::npos;
  check<ConfigError>(is_legal, where, ": a reserved name; rename it");
  const bool is_shape =
      std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t dim) { return dim >= 0; });
  const auto bytes = is_shape ? tensor_bytes(tensor.dtype, tensor.shape) : std::nullopt;
  if (bytes != tensor.bytes.size()) {
    fail<ShapeError>(where, ": ", tensor.bytes.size(), " bytes for ", info(tensor.dtype).name, " ",
                     core::list_text(tensor.shape), ", expected ",
                     bytes ? std::to_string(*bytes) : "a shape of fewer than 2^63 bytes");
  }
}

std::vector<const TensorToWrite*> sorted(const std::string& path,
                                         const std::vector<TensorToWrite>& tensors) {
  std::vector<const TensorToWrite*> order;
  std::set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    check_tensor(path, tensor);
    if (!names.insert(tensor.name).second) {
      fail<ConfigError>(path, ": tensor ", quote(tensor.name), " is given twice; rename one");
    }
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorToWrite* a, const TensorToWrite* b) {
    const size_t a_type = order_of(a->dtype);
    const size_t b_type = order_of(b->dtype);
    return a_type != b_type ? a_type > b_type : a->name < b->name;
  });
  return order;
}

std::string header_text(const std::string& path, const std::vector<const TensorToWrite*>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto append = [&](const std::string& key, const nlohmann::ordered_json& value) {
    text += text.size() > 1 ? "," : "";
    text += nlohmann::ordered_json(key).dump() + ":" + value.dump();
  };
  try {
    if (!metadata.empty()) append("__metadata__", metadata);
    uint64_t offset = 0;
    for (const TensorToWrite* tensor : tensors) {
      const uint64_t end = offset + tensor->bytes.size();
      append(tensor->name, {{"dtype", info(tensor->dtype).name},
                            {"shape", tensor->shape},
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

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::vector<const TensorToWrite*> order = sorted(path, tensors);
  const std::string header = header_text(path, order, metadata);
  const uint64_t header_bytes = header.size();
  uint64_t total = sizeof header_bytes + header_bytes;
  for (const TensorToWrite* tensor : order) total += tensor->bytes.size();
  core::AtomicFile file(path, total);
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(std::as_bytes(std::span(header)));
  for (const TensorToWrite* tensor : order) file.write(tensor->bytes);
  file.commit();
}

}  // namespace weft::io
