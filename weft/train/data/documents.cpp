#include "weft/train/data/documents.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <string_view>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/train/data/text_file.h"

namespace weft::train {
namespace {

using core::check;

constexpr std::array<std::string_view, 3> kTextEndings = {".txt", ".text", ".md"};
constexpr std::array<std::string_view, 2> kLineEndings = {".jsonl", ".ndjson"};

template <class List>
bool ends_with_one(const std::string& path, const List& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

bool is_text_file(const std::string& path) { return ends_with_one(path, kTextEndings); }

bool is_source(const std::string& path) {
  return is_text_file(path) || ends_with_one(path, kLineEndings);
}

uint64_t hash_number(uint64_t number, uint64_t hash) {
  return core::hash_bytes(std::as_bytes(std::span(&number, 1)), hash);
}

uint64_t add_file(uint64_t hash, const std::string& path, uint64_t size, uint64_t file_hash) {
  hash = hash_number(is_text_file(path) ? 1 : 2, hash);
  return hash_number(file_hash, hash_number(size, hash));
}

uint64_t hash_file(const core::File& file) {
  // A multiple of 8, so that the blocks' hashes chain to that of the file.
  constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
  uint64_t hash = core::hash_bytes({});
  std::vector<std::byte> block;
  for (uint64_t offset = 0; offset < file.size(); offset += block.size()) {
    block.resize(std::min(kBlockBytes, file.size() - offset));
    file.read_at(offset, block);
    hash = core::hash_bytes(block, hash);
  }
  return hash;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string beginning_of(const std::string& where) { return where.empty() ? "" : where + ": "; }

}  // namespace

std::vector<std::string> list_sources(const std::vector<std::string>& paths,
                                      const std::string& where) {
  std::vector<std::string> sources;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      sources.push_back(path);
      continue;
    }
    const size_t num_before = sources.size();
    std::filesystem::directory_iterator entries(path, error);
    if (error) core::fail_errno(path, "cannot list the folder", error.value());
    for (const auto& entry : entries) {
      if (is_source(entry.path().string()) && entry.is_regular_file(error)) {
        sources.push_back(entry.path().string());
      }
    }
    check<core::ConfigError>(sources.size() > num_before, beginning_of(where), path,
                             ": expected files that end in .txt, .text, .md, .jsonl or .ndjson, "
                             "got a folder without; name files or another folder");
    std::sort(sources.begin() + static_cast<std::ptrdiff_t>(num_before), sources.end());
  }
  return sources;
}

uint64_t check_sources(const std::vector<std::string>& paths, const std::string& where) {
  check<core::ConfigError>(!paths.empty(), beginning_of(where),
                           "training data: expected at least one file, got none; name .txt or "
                           ".jsonl files");
  uint64_t num_bytes = 0;
  for (const std::string& path : paths) {
    check<core::ConfigError>(is_source(path), beginning_of(where), core::quote(path),
                             ": expected a name that ends in .txt, .text, .md, .jsonl or .ndjson; "
                             "convert the file or rename it");
    num_bytes += core::File(path).size();
  }
  return num_bytes;
}

DocumentReader::DocumentReader(std::vector<std::string> paths, TextFiles text_files,
                               size_t text_part_bytes)
    : paths_(std::move(paths)),
      text_files_(text_files),
      text_part_bytes_(std::max<size_t>(text_part_bytes, 8)),
      hash_(core::hash_bytes({})) {
  check_sources(paths_);
}

DocumentReader::~DocumentReader() = default;

bool DocumentReader::open_next() {
  if (next_path_ == paths_.size()) return false;
  const std::string& path = paths_[next_path_++];
  const bool is_text = is_text_file(path);
  lines_ = std::make_unique<LineReader>(path, is_text ? text_part_bytes_ : kMaxJsonLine);
  if (is_text) text_ = std::make_unique<TextFile>(*lines_, text_files_, text_part_bytes_);
  return true;
}

void DocumentReader::close() {
  hash_ = add_file(hash_, lines_->path(), lines_->bytes_read(), lines_->hash());
  closed_bytes_ += lines_->bytes_read();
  text_.reset();
  lines_.reset();
}

bool DocumentReader::next_line(Document& document) {
  std::string line;
  while (lines_->next(line)) {
    document.where = core::join(lines_->path(), ":", lines_->line_number());
    check<core::FormatError>(lines_->is_line_end(), document.where, ": expected a line of at most ",
                             kMaxJsonLine, " bytes, got a longer one; split the document");
    if (is_blank(line)) continue;
    document = parse_json_document(line, document.where);
    return true;
  }
  return false;
}

bool DocumentReader::next(Document& document) {
  while (lines_ || open_next()) {
    if (text_ ? text_->next(document) : next_line(document)) return true;
    close();
  }
  return false;
}

uint64_t DocumentReader::bytes_read() const {
  return closed_bytes_ + (lines_ ? lines_->bytes_read() : 0);
}

uint64_t hash_sources(const std::vector<std::string>& paths) {
  check_sources(paths);
  uint64_t hash = core::hash_bytes({});
  for (const std::string& path : paths) {
    const core::File file(path);
    hash = add_file(hash, path, file.size(), hash_file(file));
  }
  return hash;
}

}  // namespace weft::train
