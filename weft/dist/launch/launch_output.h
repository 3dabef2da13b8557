#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::dist {

/// Cuts a stream of bytes into lines and puts a prefix before each.
class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends the lines that `bytes` completes to `out`. A line longer than 64 KiB is cut.
  void feed(std::string_view bytes, std::string& out);
  /// Appends what is left as a last line, with the newline that it lacks.
  void finish(std::string& out);

 private:
  std::string prefix_;
  std::string line_;
};

/// Text on its way to a descriptor that may be slow: written only when that does not block.
class OutputSink {
 public:
  explicit OutputSink(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void add(std::string_view text);
  bool has_pending() const { return !pending_.empty() && !is_broken(); }
  /// True if so much waits that the ranks' output should not be read for now.
  bool is_full() const { return pending_.size() > kFull && !is_broken(); }
  /// True once nothing can be written any more.
  bool is_broken() const { return error_ != 0; }
  /// Why: EPIPE once the reader has gone; 0 before.
  int error() const { return error_; }
  /// Writes some; call when poll says that the descriptor takes it.
  void write_some();
  /// Writes all that is left, waiting for the reader.
  void flush();

 private:
  static constexpr size_t kFull = 1 << 20;

  int fd_;
  int error_ = 0;
  std::string pending_;
};

}  // namespace weft::dist
