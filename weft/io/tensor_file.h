#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/core/files/mapped_window.h"
#include "weft/io/dtype.h"
#include "weft/shard/split.h"

namespace weft::io {

/// One tensor as its file's header describes it.
struct TensorMeta {
  std::string name;
  Dtype dtype = Dtype::kF32;
  /// Slowest dimension first, as torch has it (GGUF stores it reversed).
  std::vector<int64_t> shape;
  /// Which file of the source, and where in it.
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

/// `num_bytes` bytes from `offset` of file `file`.
struct ByteRun {
  size_t file = 0;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

/// A value of a GGUF key, or of safetensors' __metadata__ (strings only). Arrays hold one type.
using MetaValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>,
                               std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
                               std::vector<std::string>>;

/// What was read so far, for reports and tests.
struct ReadStats {
  /// Bytes of the exact runs, and the bytes that were read to get them.
  uint64_t planned_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t num_spans = 0;
  /// The most that lay in undecoded parts at a time: what loading takes beside the weights.
  uint64_t peak_host_bytes = 0;
};

/// A source of named tensors: one or several files whose headers were read and checked, and whose
/// data was not touched. Methods that read are safe from several threads.
class TensorFile {
 public:
  /// Opens a .gguf or .safetensors file, a *.safetensors.index.json, a tensor-cache.json of TVM or
  /// MLC-LLM, or a folder that holds one of these (model.safetensors.index.json, model.safetensors,
  /// tensor-cache.json or its old name ndarray-cache.json, a single *.safetensors, a single
  /// *.gguf). Recognizes by content, not by name alone. Throws FormatError (path, tensor or key,
  /// offset) or IoError.
  static std::shared_ptr<const TensorFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return is_gguf_; }
  /// In the files' order. Names are unique.
  const std::vector<TensorMeta>& tensors() const { return tensors_; }
  const TensorMeta* find(const std::string& name) const;
  /// Throws FormatError "path: missing tensor …" with near names.
  const TensorMeta& require(const std::string& name) const;
  const std::map<std::string, MetaValue>& metadata() const { return metadata_; }

  /// Fills `destination` from byte `offset` of file `file` (TensorMeta::file). Throws FormatError
  /// if the file has become shorter, IoError, InternalError outside of it.
  void read_at(size_t file, uint64_t offset, std::span<std::byte> destination) const;
  /// core::MappedWindow::copy out of `num_bytes` bytes from byte `offset` of file `file`.
  void copy_from(size_t file, uint64_t offset, uint64_t num_bytes,
                 std::span<const core::MappedWindow::Copy> copies) const {
    core::MappedWindow(*files_.at(file), offset, num_bytes).copy(copies);
  }
  /// core::File::will_need of that file.
  void will_need(size_t file, uint64_t offset, uint64_t num_bytes) const {
    files_.at(file)->will_need(offset, num_bytes);
  }

 private:
  friend class TensorFileBuilder;
  std::string path_;
  bool is_gguf_ = false;
  std::vector<std::shared_ptr<core::File>> files_;
  std::vector<TensorMeta> tensors_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, MetaValue> metadata_;
};

}  // namespace weft::io
