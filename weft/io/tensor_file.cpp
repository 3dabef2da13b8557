#include "weft/io/tensor_file.h"

#include <algorithm>
#include <filesystem>

#include "weft/core/error.h"
#include "weft/io/sources.h"

namespace weft::io {

using core::fail;
using core::FormatError;
using core::quote;

namespace {

// How much two names have in common at both ends: what a misspelt or renamed tensor keeps.
size_t likeness(const std::string& a, const std::string& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t head = 0;
  while (head < most && a[head] == b[head]) ++head;
  size_t tail = 0;
  while (tail < most - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  return head + tail;
}

// Up to three names, likest first.
std::string near_names(const std::vector<TensorMeta>& tensors, const std::string& name) {
  std::vector<std::pair<size_t, const std::string*>> scored;
  for (const TensorMeta& tensor : tensors) {
    scored.emplace_back(likeness(tensor.name, name), &tensor.name);
  }
  const size_t count = std::min<size_t>(scored.size(), 3);
  std::partial_sort(scored.begin(), scored.begin() + static_cast<ptrdiff_t>(count), scored.end(),
                    [](const auto& a, const auto& b) {
                      return a.first != b.first ? a.first > b.first : *a.second < *b.second;
                    });
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + quote(*scored[i].second);
  return text.empty() ? "none" : text;
}

}  // namespace

std::shared_ptr<const TensorFile> TensorFile::open(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string file = is_folder ? find_model_file(path) : path;
  return file.ends_with(".json") ? open_index(path, file) : open_file(path, file);
}

const TensorMeta* TensorFile::find(const std::string& name) const {
  const auto entry = by_name_.find(name);
  return entry == by_name_.end() ? nullptr : &tensors_[entry->second];
}

const TensorMeta& TensorFile::require(const std::string& name) const {
  const TensorMeta* tensor = find(name);
  if (tensor == nullptr) {
    fail<FormatError>(path_, ": missing tensor ", quote(name),
                      "; near names: ", near_names(tensors_, name),
                      "; check that it is the right model");
  }
  return *tensor;
}

void TensorFile::read_at(size_t file, uint64_t offset, std::span<std::byte> destination) const {
  const bool is_inside = file < files_.size() && destination.size() <= files_[file]->size() &&
                         offset <= files_[file]->size() - destination.size();
  core::check<core::InternalError>(is_inside, "io.TensorFile.read_at: ", destination.size(),
                                   " bytes at byte ", offset, " of file ", file,
                                   " are outside of it");
  files_[file]->read_at(offset, destination);
}

}  // namespace weft::io
