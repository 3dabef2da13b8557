#include "weft/models/load/fingerprint.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <type_traits>
#include <variant>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/sha256.h"

namespace weft::models {
namespace {

constexpr uint64_t kSampleBytes = 64;
constexpr size_t kDigestBytes = 8;

std::string sample(const io::TensorFile& file, const io::TensorMeta& tensor, uint64_t from) {
  std::string bytes(std::min(kSampleBytes, tensor.num_bytes - from), '\0');
  if (!bytes.empty()) {
    file.read_at(tensor.file, tensor.offset + from, std::as_writable_bytes(std::span(bytes)));
  }
  return bytes;
}

// What a model is configured by stands in a GGUF file itself, and beside other files.
std::string configuration(const io::TensorFile& file) {
  std::string text;
  for (const auto& [key, value] : file.metadata()) {
    // Of lists, which hold the tokenizer, the lengths are enough.
    const auto as_text = []<class Value>(const Value& each) {
      if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
        return core::join(each);
      } else {
        return core::join(each.size());
      }
    };
    text += core::join(key, '=', std::visit(as_text, value), '\n');
  }
  const std::filesystem::path path(file.path());
  const auto folder = std::filesystem::is_directory(path) ? path : path.parent_path();
  const auto config = folder / "config.json";
  constexpr uint64_t kMostBytes = 16 << 20;
  const bool has_config = !file.is_gguf() && std::filesystem::exists(config);
  return has_config ? text + core::read_text_file(config.string(), kMostBytes) : text;
}

}  // namespace

std::string fingerprint(const io::TensorFile& file) {
  std::string seen = core::sha256(configuration(file));
  for (const io::TensorMeta& tensor : file.tensors()) {
    seen += core::join(tensor.name, ' ', tensor.num_bytes, ' ') + sample(file, tensor, 0) +
            sample(file, tensor, tensor.num_bytes / 2);
  }
  return core::hex_text(core::sha256(seen).substr(0, kDigestBytes));
}

}  // namespace weft::models
