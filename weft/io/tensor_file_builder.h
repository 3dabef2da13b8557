#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"

namespace weft::io {

/// Puts a TensorFile together from the headers of one or several files.
class TensorFileBuilder {
 public:
  /// `path` is what the caller opened.
  explicit TensorFileBuilder(const std::string& path) : source_(std::make_shared<TensorFile>()) {
    source_->path_ = path;
  }

  /// Begins with what `source` has.
  explicit TensorFileBuilder(const TensorFile& source)
      : source_(std::make_shared<TensorFile>(source)) {}

  /// Opens one more file, of whichever format its content is, reads its header and adds its
  /// tensors. The first file's metadata become the source's. Returns this file's own metadata,
  /// valid until the next call. Throws FormatError (also when a tensor is in two files, or formats
  /// are mixed) or IoError.
  const std::map<std::string, MetaValue>& add_file(const std::string& path);
  /// Opens one more file that has no header, and returns its size; `add_raw_tensors` then says what
  /// is in it. Throws FormatError or IoError.
  uint64_t add_raw_file(const std::string& path);
  /// Adds tensors of the last file. Throws FormatError for a tensor that was added before.
  void add_raw_tensors(std::vector<TensorMeta> tensors);
  /// Opens one more file that has no header; tensors that there are already are in it from now on,
  /// as `tensors` says. Throws FormatError, IoError, InternalError for one that there is not.
  void replace_tensors(const std::string& path, std::vector<TensorMeta> tensors);
  /// Adds a tensor that no file holds: it can be planned for, but not read. Throws FormatError when
  /// it is there already.
  void add_header(const std::string& name, Dtype dtype, std::vector<int64_t> shape);
  /// Tensors so far.
  const std::vector<TensorMeta>& tensors() const { return source_->tensors_; }
  /// Path of file number `index`.
  const std::string& file_path(size_t index) const { return source_->files_[index]->path(); }
  /// The finished source; the builder is empty after.
  std::shared_ptr<const TensorFile> finish() { return std::move(source_); }

 private:
  void add_tensors(std::vector<TensorMeta> tensors);

  std::shared_ptr<TensorFile> source_;
  std::map<std::string, MetaValue> later_metadata_;
  uint64_t header_end_ = 0;
};

}  // namespace weft::io
