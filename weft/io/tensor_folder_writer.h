#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/core/files/sized_file.h"
#include "weft/io/formats/write_safetensors.h"

namespace weft::io {

/// A safetensors file of a folder to be written.
struct OutputFile {
  std::string name;
  std::vector<TensorSpec> tensors;
  std::map<std::string, std::string> metadata;
};

/// Spreads tensors, in the order given, over files of at most `max_bytes` of data (a larger tensor
/// has a file of its own): "model.safetensors", or "model-00001-of-00002.safetensors" and so on.
/// Every file gets `metadata`. Throws ShapeError, ConfigError as safetensors_head.
std::vector<OutputFile> spread_over_files(const std::vector<TensorSpec>& tensors,
                                          uint64_t max_bytes,
                                          const std::map<std::string, std::string>& metadata);

/// Writes the tensors of a model's folder in any order and in pieces, also from several processes
/// (each its own bytes): headers follow from shapes, so they stand before any data, and no tensor
/// is in memory but what is being written. Nobody reads the folder yet:
/// core::AtomicFolder.
class TensorFolderWriter {
 public:
  /// One process of those that write lays the files out, with model.safetensors.index.json if there
  /// are several; the others open them after it. Names of tensors are unique over all files.
  /// Throws ConfigError, ShapeError as safetensors_head, IoError (a full disk shows here).
  enum class Role { kLaysOut, kJoins };
  TensorFolderWriter(const std::string& folder, std::vector<OutputFile> files, Role role);

  /// Writes a tensor's bytes from byte `offset` of it. Throws IoError.
  void write(const std::string& tensor, uint64_t offset, std::span<const std::byte> bytes);
  /// The whole of a tensor.
  void write(const std::string& tensor, std::span<const std::byte> bytes) {
    write(tensor, 0, bytes);
  }
  /// Puts what this process wrote on disk. Throws IoError.
  void sync();
  /// Opens the folder as a reader does, compares names, types and shapes with what was to be
  /// written, then reads what this process wrote and compares its hash. After all have synced.
  /// Throws IoError for bytes that differ, FormatError as TensorFile::open.
  void verify() const;

 private:
  struct Place {
    size_t file = 0;
    uint64_t offset = 0;
    uint64_t num_bytes = 0;
  };
  struct Written {
    size_t file = 0;
    uint64_t offset = 0;
    uint64_t num_bytes = 0;
    uint64_t hash = 0;
  };
  void write_index() const;
  void write_file(size_t file, uint64_t offset, std::span<const std::byte> bytes);

  std::string folder_;
  std::vector<OutputFile> files_;
  std::vector<core::SizedFile> open_files_;
  std::map<std::string, Place> places_;
  std::vector<Written> written_;
};

/// Copies what a model's folder holds beside its weights (config.json, tokenizer files, templates,
/// licence…) from `from` to `to`, but for the files named in `except`. Throws IoError, FormatError.
void copy_model_files(const std::string& from, const std::string& to,
                      const std::vector<std::string>& except = {});

}  // namespace weft::io
