#include "weft/io/tensor_file_builder.h"

#include <fcntl.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/io/formats/gguf.h"
#include "weft/io/formats/header_checks.h"
#include "weft/io/formats/safetensors.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;
using core::quote;

namespace {

enum class Format { kGguf, kSafetensors };

std::string first_bytes(const core::File& file, size_t num_bytes) {
  std::string bytes(std::min<uint64_t>(file.size(), num_bytes), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// The content decides; the name only says which reader explains best what is wrong.
Format recognize(const core::File& file) {
  const std::string head = first_bytes(file, 16);
  if (head.starts_with("GGUF")) return Format::kGguf;
  if (file.path().ends_with(".gguf")) return Format::kGguf;
  if (file.path().ends_with(".safetensors")) return Format::kSafetensors;
  const size_t brace = head.find_first_not_of(" \t\r\n", 8);
  if (head.size() > 8 && brace != std::string::npos && head[brace] == '{') {
    return Format::kSafetensors;
  }
  check<FormatError>(!head.starts_with("PK"), file.path(),
                     ": a zip or PyTorch archive, expected safetensors or GGUF; save the model as "
                     "safetensors");
  fail<FormatError>(file.path(), ": begins with ", quote(head),
                    ", expected a safetensors header or 'GGUF'; give a model's file or folder");
}

// Reads of it fetch the pages that they are for, and none that the system expects to be next: those
// are mostly other ranks'.
std::shared_ptr<core::File> open_exactly(const std::string& path) {
  auto file = std::make_shared<core::File>(path);
  static_cast<void>(::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_RANDOM));
  return file;
}

std::map<std::string, MetaValue> to_meta_values(std::map<std::string, std::string> texts) {
  std::map<std::string, MetaValue> values;
  for (auto& [key, text] : texts) values.emplace(key, std::move(text));
  return values;
}

}  // namespace

const std::map<std::string, MetaValue>& TensorFileBuilder::add_file(const std::string& path) {
  const auto file = open_exactly(path);
  const bool is_gguf = recognize(*file) == Format::kGguf;
  const size_t index = source_->files_.size();
  check<FormatError>(index == 0 || is_gguf == source_->is_gguf_, path, ": ",
                     is_gguf ? "GGUF" : "safetensors",
                     " among files of the other format; keep one format in a model");
  source_->is_gguf_ = is_gguf;
  source_->files_.push_back(file);
  auto& metadata = index == 0 ? source_->metadata_ : later_metadata_;
  if (is_gguf) {
    GgufHeader header = read_gguf_header(*file, index);
    metadata = std::move(header.metadata);
    add_tensors(std::move(header.tensors));
  } else {
    SafetensorsHeader header = read_safetensors_header(*file, index);
    metadata = to_meta_values(std::move(header.metadata));
    add_tensors(std::move(header.tensors));
  }
  return metadata;
}

uint64_t TensorFileBuilder::add_raw_file(const std::string& path) {
  source_->files_.push_back(open_exactly(path));
  return source_->files_.back()->size();
}

void TensorFileBuilder::add_raw_tensors(std::vector<TensorMeta> tensors) {
  for (TensorMeta& tensor : tensors) tensor.file = source_->files_.size() - 1;
  add_tensors(std::move(tensors));
}

void TensorFileBuilder::replace_tensors(const std::string& path, std::vector<TensorMeta> tensors) {
  add_raw_file(path);
  for (TensorMeta& tensor : tensors) {
    const auto place = source_->by_name_.find(tensor.name);
    check<core::InternalError>(place != source_->by_name_.end(), source_->path_, ": tensor ",
                               quote(tensor.name), " can't be replaced, there is none");
    tensor.file = source_->files_.size() - 1;
    source_->tensors_[place->second] = std::move(tensor);
  }
}

void TensorFileBuilder::add_header(const std::string& name, Dtype dtype,
                                   std::vector<int64_t> shape) {
  const bool is_new = source_->by_name_.emplace(name, source_->tensors_.size()).second;
  check<FormatError>(is_new, source_->path_, ": tensor ", quote(name), " twice, expected it once");
  TensorMeta& tensor = source_->tensors_.emplace_back();
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.offset = header_end_;
  const std::optional<uint64_t> bytes = tensor_bytes(dtype, tensor.shape);
  check<FormatError>(bytes.has_value(), source_->path_, ": tensor ", quote(name), ": shape ",
                     core::list_text(tensor.shape), " does not fit in memory");
  tensor.num_bytes = *bytes;
  header_end_ += tensor.num_bytes;
}

void TensorFileBuilder::add_tensors(std::vector<TensorMeta> tensors) {
  for (TensorMeta& tensor : tensors) {
    const auto [entry, is_new] = source_->by_name_.emplace(tensor.name, source_->tensors_.size());
    if (!is_new) {
      fail<FormatError>(file_path(tensor.file), ": tensor ", quote(tensor.name), " is also in ",
                        file_path(source_->tensors_[entry->second].file),
                        ", expected it once; remove one of the files");
    }
    source_->tensors_.push_back(std::move(tensor));
  }
}

}  // namespace weft::io
