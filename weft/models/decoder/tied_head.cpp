#include "weft/models/decoder/tied_head.h"

#include <algorithm>
#include <cstring>

#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"
#include "weft/models/decoder/decoder_names.h"

namespace weft::models {
namespace {

using core::ConfigError;
using core::quote;

constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

// A tensor of the head, and the embedding's of the same kind.
struct Copy {
  const io::TensorMeta* head = nullptr;
  const io::TensorMeta* embedding = nullptr;
};

std::vector<Copy> copies(const ModelConfig& config, const io::TensorFile& file) {
  std::vector<Copy> found;
  if (!config.is_tied) return found;
  for (const char* suffix : {".weight", ".scales", ".biases"}) {
    const auto* head = file.find(folder_name(file, model_name(config, {Part::kHead})) + suffix);
    if (head == nullptr) continue;
    const std::string embedding = folder_name(file, model_name(config, {Part::kEmbedding}));
    found.push_back({head, file.find(embedding + suffix)});
  }
  return found;
}

[[noreturn]] void fail_differs(const io::TensorFile& file, const Copy& copy) {
  core::fail<ConfigError>(
      file.path(), ": tensor ", quote(copy.head->name),
      " is not the embedding's, to which config.json ties the head; set tie_word_embeddings to "
      "false, or take the tensor out");
}

bool is_equal(const io::TensorFile& file, const Copy& copy, const dist::Group& group) {
  const uint64_t size = copy.head->num_bytes;
  std::vector<std::byte> head(std::min(size, kChunkBytes)), embedding(head.size());
  const auto n = static_cast<uint64_t>(group.size());
  for (uint64_t at = static_cast<uint64_t>(group.rank()) * kChunkBytes; at < size;
       at += n * kChunkBytes) {
    const size_t length = std::min(kChunkBytes, size - at);
    file.read_at(copy.head->file, copy.head->offset + at, std::span(head).first(length));
    file.read_at(copy.embedding->file, copy.embedding->offset + at,
                 std::span(embedding).first(length));
    if (std::memcmp(head.data(), embedding.data(), length) != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> copied_head(const ModelConfig& config, const io::TensorFile& file) {
  std::vector<std::string> names;
  for (const Copy& copy : copies(config, file)) {
    const bool is_alike = copy.embedding != nullptr && copy.head->dtype == copy.embedding->dtype &&
                          copy.head->shape == copy.embedding->shape;
    if (!is_alike) fail_differs(file, copy);
    names.push_back(copy.head->name);
  }
  return names;
}

void check_copied_head(const ModelConfig& config, const io::TensorFile& file,
                       const dist::Group& group) {
  const std::vector<Copy> found = copies(config, file);
  if (found.empty()) return;
  dist::run_together(group, [&] {
    for (const Copy& copy : found) {
      if (!is_equal(file, copy, group)) fail_differs(file, copy);
    }
  });
}

}  // namespace weft::models
