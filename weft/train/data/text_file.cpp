#include "weft/train/data/text_file.h"

#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/text/unicode/utf8.h"

namespace weft::train {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_blank(std::string_view line) {
  for (const char c : line) {
    if (!is_space(c)) return false;
  }
  return true;
}

void drop_line_end(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

void check_utf8(std::string_view line, const LineReader& lines) {
  size_t offset = 0;
  while (offset < line.size()) {
    const text::Utf8Step step = text::utf8_step(line.substr(offset));
    core::check<core::FormatError>(step.valid, lines.path(), ":", lines.line_number(),
                                   ": expected UTF-8, got the byte ",
                                   static_cast<int>(static_cast<unsigned char>(line[offset])),
                                   "; convert the file, e.g. iconv -f latin1 -t utf-8");
    offset += step.size;
  }
}

}  // namespace

void DocumentReader::TextFile::cut_at_form_feed() {
  const size_t position = line_.find('\f');
  if (position == std::string::npos) return;
  const size_t size = position == 0 ? 1 : position;
  carried_ = line_.substr(size);
  line_.resize(size);
}

bool DocumentReader::TextFile::take_line() {
  if (!carried_.empty()) {
    line_ = std::exchange(carried_, {});
  } else {
    if (!lines_.next(line_)) return false;
    if (!text::is_valid_utf8(line_)) check_utf8(line_, lines_);
    if (lines_.line_number() == 1 && line_.starts_with(kByteOrderMark)) {
      line_.erase(0, kByteOrderMark.size());
    }
  }
  if (kind_ == TextFiles::kFormFeeds) cut_at_form_feed();
  return true;
}

bool DocumentReader::TextFile::is_separator() const {
  if (kind_ == TextFiles::kFormFeeds) return line_ == "\f";
  return kind_ != TextFiles::kOneDocument && is_blank(line_);
}

bool DocumentReader::TextFile::is_full(const std::string& text) const {
  if (text.size() < part_bytes_ || line_.empty()) return false;
  const std::string_view end = std::string_view(text).substr(text.size() - 2);
  const bool is_lone_line_end = end[1] == '\n' && !is_space(end[0]) && !is_space(line_[0]);
  const bool is_lone_space =
      !is_space(end[1]) && line_.size() > 1 && line_[0] == ' ' && !is_space(line_[1]);
  // Without such a place the text is cut anywhere rather than held.
  return is_lone_line_end || is_lone_space || text.size() >= 4 * part_bytes_;
}

bool DocumentReader::TextFile::read_part(Document& document, TextPart& part) {
  part = {};
  part.is_first = !is_continued_;
  is_continued_ = false;
  bool is_open = true;
  while (is_open && take_line()) {
    if (is_separator()) {
      is_open = part.text.empty() && part.is_first;
      continue;
    }
    if (is_full(part.text)) {
      carried_ = std::move(line_);
      is_continued_ = true;
      part.is_last = false;
      break;
    }
    if (part.text.empty()) document.where = core::join(lines_.path(), ":", lines_.line_number());
    part.text += line_;
    is_open = kind_ != TextFiles::kLines || !lines_.is_line_end();
  }
  return !part.text.empty();
}

bool DocumentReader::TextFile::next(Document& document) {
  TextPart part;
  do {
    if (!read_part(document, part)) return false;
    if (kind_ != TextFiles::kOneDocument && part.is_last) drop_line_end(part.text);
    // A page may be a line end alone, which is no document.
  } while (part.text.empty() && part.is_first);
  document.content = std::move(part);
  return true;
}

}  // namespace weft::train
