#pragma once

#include <string>

#include "weft/train/data/documents.h"

namespace weft::train {

/// Cuts the lines of a text into documents, and long documents into parts. Parts end at a line end
/// between two lines with text, where tokenizers cut anyway: the ids of the parts are those of the
/// whole.
class DocumentReader::TextFile {
 public:
  /// `lines` must outlive this. Parts have about `part_bytes`.
  TextFile(LineReader& lines, TextFiles kind, size_t part_bytes)
      : lines_(lines), kind_(kind), part_bytes_(part_bytes) {}

  bool next(Document& document);

 private:
  bool read_part(Document& document, TextPart& part);
  bool take_line();
  void cut_at_form_feed();
  bool is_separator() const;
  bool is_full(const std::string& text) const;

  LineReader& lines_;
  TextFiles kind_;
  size_t part_bytes_;
  std::string line_;
  /// Read, but belongs to what comes next.
  std::string carried_;
  bool is_continued_ = false;
};

}  // namespace weft::train
