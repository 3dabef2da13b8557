#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/train/checkpoint/manifest.h"

namespace weft::train {

/// Reads a checkpoint, whatever ranks wrote it, as wholes of which any elements can be had: only
/// the bytes that are asked for are read. For one thread at a time.
class CheckpointReader {
 public:
  /// Reads the manifest of the checkpoint in `folder`, and no other file. Throws FormatError,
  /// IoError.
  explicit CheckpointReader(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }

  /// Fills `values` with the elements of `wanted`, of any cut of the same whole. Of elements that
  /// several ranks have saved the first one's are taken. Throws FormatError, naming the folder or
  /// the file and the parameter: none of that name, other sizes, no such state, elements that
  /// nobody has saved, a file that is missing, shorter, or says otherwise than the manifest;
  /// IoError.
  void read(const std::string& state, const Slice& wanted, std::span<float> values);
  /// The whole of a state of the whole parameter. Throws as read.
  void read_whole_state(const std::string& state, const std::string& name, std::span<float> values);
  /// Throws FormatError unless file `index` of the manifest has its size and, with `hashes`, its
  /// hash, which reads all of it; IoError.
  void check_file(size_t index, bool hashes) const;
  /// The same of all files and their hashes.
  void check_files() const;

 private:
  // A rank's file and where in it its tensors begin.
  struct OpenFile {
    core::File file;
    std::map<std::string, std::pair<uint64_t, int64_t>> tensors;
  };
  // Elements to be read: a run of a file, and where they go.
  struct Copy {
    size_t file = 0;
    uint64_t offset = 0;
    int64_t destination = 0;
    int64_t length = 0;
  };
  struct Place {
    size_t file = 0;
    size_t slice = 0;
  };

  const SavedParameter& parameter(const std::string& name) const;
  const OpenFile& open(size_t index);
  uint64_t find_tensor(size_t file, const std::string& name, int64_t length);
  std::vector<Copy> plan(const std::string& state, const Slice& wanted);
  [[noreturn]] void fail_missing(const std::string& state, const std::string& name,
                                 int64_t element) const;
  void copy(std::vector<Copy> copies, std::span<float> values);
  void read_span(std::span<const Copy> copies, uint64_t num_bytes, std::span<float> values);

  std::string folder_;
  Manifest manifest_;
  std::map<std::string, std::vector<Place>> places_;
  std::map<size_t, std::unique_ptr<OpenFile>> files_;
  std::vector<std::byte> buffer_;
};

}  // namespace weft::train
