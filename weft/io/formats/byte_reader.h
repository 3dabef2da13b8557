#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/core/files/file.h"

namespace weft::io {

static_assert(std::endian::native == std::endian::little, "files are read as little-endian");

/// A cursor over a file's header, little-endian, buffered. Never hands out or allocates bytes that
/// the file or the limit does not have.
class ByteReader {
 public:
  /// Reads at most `max_bytes` from the beginning of `file`, which must outlive the reader.
  ByteReader(const core::File& file, uint64_t max_bytes);

  uint64_t position() const { return position_; }
  /// Bytes between the position and the end of the file.
  uint64_t remaining() const { return file_.size() - position_; }
  /// Names what is read now, e.g. ("key", "general.name"); it begins every message.
  void set_subject(std::string_view kind, std::string_view name);
  /// "path: key 'general.name' at byte 24".
  std::string where() const;

  /// Throws FormatError "…: truncated: need A bytes, have B" unless `num_bytes` remain.
  void need(uint64_t num_bytes) const;
  /// The same for `count` items of `item_bytes` bytes each.
  void need_items(uint64_t count, uint64_t item_bytes) const;

  /// The next number.
  template <class T>
  T read() {
    T value;
    read_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  /// Fills `destination` with the next bytes.
  void read_bytes(std::span<std::byte> destination);
  /// The next `length` bytes. Checked before anything is allocated.
  std::string read_string(uint64_t length);

 private:
  void refill();

  const core::File& file_;
  uint64_t max_bytes_;
  uint64_t position_ = 0;
  std::vector<std::byte> buffer_;
  size_t buffer_used_ = 0;
  std::string_view subject_kind_ = "header";
  std::string subject_name_;
};

}  // namespace weft::io
