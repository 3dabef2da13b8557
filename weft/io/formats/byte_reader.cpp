#include "weft/io/formats/byte_reader.h"

#include <algorithm>

#include "weft/core/checked.h"
#include "weft/core/error.h"

namespace weft::io {

using core::fail;
using core::FormatError;

namespace {

constexpr size_t kBufferBytes = 256 * 1024;

}  // namespace

ByteReader::ByteReader(const core::File& file, uint64_t max_bytes)
    : file_(file), max_bytes_(max_bytes) {}

void ByteReader::set_subject(std::string_view kind, std::string_view name) {
  subject_kind_ = kind;
  subject_name_ = name;
}

std::string ByteReader::where() const {
  // Called for each tensor of files with 100,000 of them: no stream.
  std::string text = file_.path();
  text.append(": ").append(subject_kind_);
  if (!subject_name_.empty()) text.append(" ").append(core::quote(subject_name_));
  return text.append(" at byte ").append(std::to_string(position_));
}

void ByteReader::need(uint64_t num_bytes) const { need_items(num_bytes, 1); }

void ByteReader::need_items(uint64_t count, uint64_t item_bytes) const {
  const auto total = core::checked_mul(count, item_bytes);
  if (!total || *total > remaining()) [[unlikely]] {
    fail<FormatError>(where(), ": truncated: need ",
                      total ? core::join(*total) : core::join(count, " x ", item_bytes),
                      " bytes, have ", remaining(), "; fetch or convert the file again");
  }
  // No overflow: both are at most the file's size, which is below 2^63.
  if (position_ + *total > max_bytes_) [[unlikely]] {
    fail<FormatError>(where(), ": the header goes on for ", *total, " bytes, past the limit of ",
                      max_bytes_, " bytes");
  }
}

void ByteReader::refill() {
  const uint64_t left = std::min<uint64_t>(remaining(), kBufferBytes);
  buffer_.resize(left);
  buffer_used_ = 0;
  file_.read_at(position_, buffer_);
}

void ByteReader::read_bytes(std::span<std::byte> destination) {
  need(destination.size());
  while (!destination.empty()) {
    if (buffer_used_ == buffer_.size()) refill();
    const size_t step = std::min(destination.size(), buffer_.size() - buffer_used_);
    std::memcpy(destination.data(), buffer_.data() + buffer_used_, step);
    buffer_used_ += step;
    position_ += step;
    destination = destination.subspan(step);
  }
}

std::string ByteReader::read_string(uint64_t length) {
  need(length);
  std::string text(length, '\0');
  read_bytes(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace weft::io
