#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/core/files/file.h"

namespace weft::train {

/// Reads a text file line by line, a block at a time: memory is bounded by the longest line that is
/// allowed, not by the file. Hashes the bytes on the way.
class LineReader {
 public:
  /// Lines of more than `max_line` bytes come in parts. Throws as core::File.
  LineReader(const std::string& path, size_t max_line);

  /// The next line with its "\n", or the next part of a long one; false at the end. Parts end
  /// before a space or at least between characters. Throws IoError, and FormatError if the file has
  /// become shorter.
  bool next(std::string& line);
  /// Of the line that `next` gave last, from 1.
  int64_t line_number() const { return line_number_; }
  /// False while `next` has given only a part of a line and more of it follows.
  bool is_line_end() const { return is_line_end_; }

  const std::string& path() const { return file_.path(); }
  uint64_t bytes_read() const { return read_; }
  /// core::hash_bytes of all that was read: of the whole file once `next` was false.
  uint64_t hash() const { return hash_; }

 private:
  void read_block();
  size_t line_size(size_t searched);

  core::File file_;
  size_t max_line_;
  std::string buffer_;
  size_t begin_ = 0;
  uint64_t read_ = 0;
  uint64_t hash_ = 0;
  int64_t line_number_ = 0;
  bool is_line_end_ = true;
};

}  // namespace weft::train
