#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/core/file.h"
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
  uint64_t planned_bytes = 0;
  uint64_t read_bytes = 0;
  uint64_t num_spans = 0;
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

  /// Fills `destination` with the runs' bytes, one after the other. Neighbouring runs are read as
  /// one span (gaps up to 64 KiB, spans up to 8 MiB) and gathered; a run of 1 MiB or more is read
  /// straight to its place. destination.size() is the runs' sum. Throws FormatError if a file has
  /// become shorter, IoError.
  void read(std::span<const ByteRun> runs, std::span<std::byte> destination,
            ReadStats* stats = nullptr) const;

 private:
  friend class TensorFileBuilder;
  std::string path_;
  bool is_gguf_ = false;
  std::vector<std::shared_ptr<core::File>> files_;
  std::vector<TensorMeta> tensors_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, MetaValue> metadata_;
};

/// Byte runs of the sub-matrix rows × columns of a tensor seen as [rows, columns] = [product of all
/// dims but the last, last dim] (a 1-d tensor is one row). Rows are taken in the given order, so a
/// list of single rows reorders; adjacent runs are merged. Column edges must lie on blocks.
/// Throws ShapeError naming the tensor.
std::vector<ByteRun> matrix_runs(const TensorMeta& meta, const std::vector<shard::Range>& rows,
                                 const shard::Range& columns);

}  // namespace weft::io
