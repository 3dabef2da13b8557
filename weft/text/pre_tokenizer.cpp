#include "weft/text/pre_tokenizer.h"

#include <span>

#include "weft/core/error.h"
#include "weft/text/scanners.h"

namespace weft::text {
namespace {

using Pattern = PreTokenizer::Pattern;

// What the tokenizer.json of the models behind each name does. Names whose normalizer or options
// are not known for sure are left out on purpose: a wrong guess would change ids silently.
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "smollm", .isolate_digits = true},
    {.name = "starcoder", .isolate_digits = true},
    {.name = "refact", .isolate_digits = true},
    {.name = "command-r", .nfc = true, .isolate_digits = true},
    {.name = "gpt-2"},
    {.name = "phi-2"},
    {.name = "llama-bpe", .pattern = Pattern::kLlama3, .ignore_merges = true},
    {.name = "llama3", .pattern = Pattern::kLlama3, .ignore_merges = true},
    {.name = "llama-v3", .pattern = Pattern::kLlama3, .ignore_merges = true},
    {.name = "qwen2", .pattern = Pattern::kLlama3, .nfc = true, .max_digits = 1},
    {.name = "gpt-4o", .pattern = Pattern::kGpt4o, .ignore_merges = true},
    {.name = "tekken", .pattern = Pattern::kTekken, .max_digits = 1, .ignore_merges = true},
};

size_t next_end(const PreTokenizer& row, CharSpan chars, size_t begin) {
  switch (row.pattern) {
    case Pattern::kGpt2:
      return scan_gpt2(chars, begin);
    case Pattern::kLlama3:
      return scan_llama3(chars, begin, row.max_digits);
    case Pattern::kGpt4o:
      return scan_cased(chars, begin, {.max_digits = row.max_digits, .contractions = true});
    case Pattern::kTekken:
      return scan_cased(chars, begin, {.max_digits = row.max_digits, .contractions = false});
  }
  core::fail<core::InternalError>("text.PreTokenizer: pattern without a scanner");
}

// The end of what is scanned at once: the patterns never look across an isolated digit.
size_t field_end(CharSpan chars, size_t begin) {
  if (chars[begin].is(kNumeric)) return begin + 1;
  size_t end = begin;
  while (end < chars.size() && !chars[end].is(kNumeric)) ++end;
  return end;
}

}  // namespace

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  const std::vector<Char> chars = decode_chars(text);
  const auto offset = [&](size_t i) { return i < chars.size() ? chars[i].offset : text.size(); };
  std::vector<std::string_view> pieces;
  for (size_t field = 0; field < chars.size();) {
    const size_t end = isolate_digits ? field_end(chars, field) : chars.size();
    const CharSpan scanned = CharSpan(chars).first(end);
    while (field < end) {
      const size_t next = next_end(*this, scanned, field);
      pieces.push_back(text.substr(offset(field), offset(next) - offset(field)));
      field = next;
    }
  }
  return pieces;
}

const PreTokenizer& find_pre_tokenizer(const std::string& name, const std::string& where) {
  std::string known;
  for (const PreTokenizer& row : kPreTokenizers) {
    if (row.name == name) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  core::fail<core::ConfigError>(where, ": pre-tokenizer: expected one of ", known, "; got \"", name,
                                "\"; convert the model with a known tokenizer.ggml.pre");
}

}  // namespace weft::text
