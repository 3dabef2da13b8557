#include "weft/train/data/line_reader.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "weft/core/hash.h"

namespace weft::train {
namespace {

// A multiple of 8, so that hashes of blocks chain to that of the file.
constexpr size_t kBlockBytes = size_t{1} << 20;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Where a long line is cut: tokenizers cut texts before a single space, so the ids of
// the parts are those of the whole.
size_t part_size(std::string_view text) {
  for (size_t i = text.size() - 2; i > text.size() / 2; --i) {
    if (text[i] == ' ' && !is_space(text[i - 1]) && !is_space(text[i + 1])) return i;
  }
  size_t size = text.size() - 1;
  constexpr size_t kMaxContinuation = 3;
  for (size_t i = 0; i < kMaxContinuation && size > 1; ++i) {
    const bool is_continuation = (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80;
    if (!is_continuation) break;
    --size;
  }
  return size;
}

}  // namespace

LineReader::LineReader(const std::string& path, size_t max_line)
    : file_(path), max_line_(std::max<size_t>(max_line, 8)), hash_(core::hash_bytes({})) {}

void LineReader::read_block() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t old_size = buffer_.size();
  buffer_.resize(old_size + std::min<uint64_t>(kBlockBytes, file_.size() - read_));
  const auto block = std::as_writable_bytes(std::span(buffer_)).subspan(old_size);
  file_.read_at(read_, block);
  hash_ = core::hash_bytes(block, hash_);
  read_ += block.size();
}

size_t LineReader::line_size(size_t searched) {
  while (true) {
    const size_t end = buffer_.find('\n', begin_ + searched);
    if (end != std::string::npos && end - begin_ < max_line_) return end - begin_ + 1;
    searched = buffer_.size() - begin_;
    if (searched > max_line_) {
      return part_size(std::string_view(buffer_).substr(begin_, max_line_));
    }
    if (read_ == file_.size()) return searched;
    read_block();
  }
}

bool LineReader::next(std::string& line) {
  const size_t size = line_size(0);
  if (size == 0) return false;
  line.assign(buffer_, begin_, size);
  begin_ += size;
  if (is_line_end_) ++line_number_;
  is_line_end_ = line.back() == '\n' || (read_ == file_.size() && begin_ == buffer_.size());
  return true;
}

}  // namespace weft::train
