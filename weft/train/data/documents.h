#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "weft/text/chat_template.h"
#include "weft/train/data/line_reader.h"

namespace weft::train {

/// What is a document in a .txt file.
enum class TextFiles {
  /// The whole file, byte for byte.
  kOneDocument,
  /// Paragraphs: what stands between lines without text. Their last line end is left out.
  kBlankLines,
  /// What stands between form feeds (\f).
  kFormFeeds,
  /// Each line that has text, without its end.
  kLines,
};

/// The next part of a text; long ones come in several, so that no file must fit into memory. Only
/// the last of several may be empty.
struct TextPart {
  std::string text;
  bool is_first = true;
  bool is_last = true;
};

/// A text whose second half is to be learned.
struct Completion {
  std::string prompt;
  std::string completion;
};

/// A chat of which the assistant's answers are to be learned.
struct Conversation {
  std::vector<text::Message> messages;
};

/// One training document, or a part of one.
struct Document {
  /// Where it stands, for messages: "corpus.jsonl:17".
  std::string where;
  std::variant<TextPart, Completion, Conversation> content;
};

/// Lines of .jsonl files have at most this many bytes; parts of texts have about kTextPartBytes.
inline constexpr size_t kMaxJsonLine = size_t{64} << 20;
inline constexpr size_t kTextPartBytes = size_t{1} << 20;

/// The document in one line of a .jsonl file: an object with "text", with "messages" (a list of
/// {"role", "content"}, at least one of role "assistant"), or with "prompt" and "completion". Other
/// keys are left alone. Throws FormatError that begins with `where`.
Document parse_json_document(const std::string& line, const std::string& where);

/// The paths with each folder replaced by the files in it whose names end as those below, in order
/// of their names; subfolders are left alone. Throws ConfigError for a folder without any, which
/// begins with `where` if that is given ("run.toml:3:9: data.train"); IoError.
std::vector<std::string> list_sources(const std::vector<std::string>& paths,
                                      const std::string& where = "");

/// Sum of the files' bytes. Throws ConfigError, beginning with `where` if that is given, for no
/// files or an ending other than .txt, .text, .md, .jsonl and .ndjson, and as core::File for one
/// that can't be read.
uint64_t check_sources(const std::vector<std::string>& paths, const std::string& where = "");

/// Reads training files one after another, one document at a time. Texts are UTF-8; a byte order
/// mark at a file's start is left out. Lines of .jsonl files without text are skipped.
class DocumentReader {
 public:
  /// Throws as check_sources.
  DocumentReader(std::vector<std::string> paths, TextFiles text_files,
                 size_t text_part_bytes = kTextPartBytes);
  ~DocumentReader();

  /// The next document or part; false at the end. Throws FormatError that names file and line.
  bool next(Document& document);
  /// Of all files, read so far.
  uint64_t bytes_read() const;
  /// Of all files' bytes and kinds, in order, once `next` was false: as hash_sources gives it.
  uint64_t hash() const { return hash_; }

 private:
  class TextFile;
  bool open_next();
  bool next_line(Document& document);
  void close();

  std::vector<std::string> paths_;
  TextFiles text_files_;
  size_t text_part_bytes_;
  size_t next_path_ = 0;
  uint64_t closed_bytes_ = 0;
  uint64_t hash_ = 0;
  std::unique_ptr<LineReader> lines_;
  /// Set while the open file is a text.
  std::unique_ptr<TextFile> text_;
};

/// What DocumentReader::hash will be, without making documents. Throws as DocumentReader.
uint64_t hash_sources(const std::vector<std::string>& paths);

}  // namespace weft::train
