#include "weft/text/tokenizer/pre_tokenizer.h"

#include <span>
#include <utility>

#include "weft/core/error.h"
#include "weft/text/tokenizer/published_sequences.h"
#include "weft/text/tokenizer/scanners.h"

namespace weft::text {
namespace {

using Pattern = PreTokenizer::Pattern;

// What the tokenizer.json of the models of each name does, and for those whose file was not at hand
// what llama.cpp does with the name. Others are left out on purpose: a wrong guess would change ids
// silently.
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "smollm", .isolate_digits = true},
    {.name = "starcoder", .isolate_digits = true},
    {.name = "refact", .isolate_digits = true},
    {.name = "command-r", .nfc = true, .isolate_digits = true},
    {.name = "gpt-2"},
    {.name = "phi-2"},
    {.name = "llama-bpe", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama3", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "llama-v3", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "qwen2", .pattern = Pattern::kLlama3, .nfc = true, .max_digits = 1},
    {.name = "qwen35", .pattern = Pattern::kQwen35, .nfc = true, .max_digits = 1},
    {.name = "gpt-4o", .pattern = Pattern::kGpt4o, .ignore_merges = true},
    {.name = "tekken",
     .pattern = Pattern::kTekken,
     .max_digits = 1,
     .ignore_merges = true,
     .adds_bos = true},
    {.name = "lfm2", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "falcon3", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "pixtral", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .pattern = Pattern::kLlama3, .ignore_merges = true, .adds_bos = true},
    {.name = "dbrx", .pattern = Pattern::kLlama3},
    {.name = "smaug-bpe", .pattern = Pattern::kLlama3},
    {.name = "chatglm-bpe", .pattern = Pattern::kLlama3},
    {.name = "glm4", .pattern = Pattern::kLlama3, .ignore_merges = true},
    {.name = "deepseek-r1-qwen", .pattern = Pattern::kLlama3, .nfc = true, .max_digits = 1},
    {.name = "megrez", .pattern = Pattern::kLlama3, .max_digits = 1},
    {.name = "llama4", .pattern = Pattern::kGpt4o},
    {.name = "kanana2", .pattern = Pattern::kGpt4o},
    {.name = "olmo"},
    {.name = "mellum"},
    {.name = "gigachat"},
    {.name = "a.x-4.0"},
    {.name = "trillion"},
    {.name = "minerva-7b", .isolate_digits = true},
    {.name = "deepseek-llm", .sequence = kDeepSeekLlm},
    {.name = "deepseek-coder", .sequence = kDeepSeekCoder},
    {.name = "deepseek-v3", .sequence = kDeepSeekV3},
    {.name = "seed-coder", .sequence = kSeedCoder},
    {.name = "kimi-k2", .ignore_merges = true, .sequence = kKimiK2},
};

size_t next_end(const PreTokenizer& row, CharSpan chars, size_t begin) {
  switch (row.pattern) {
    case Pattern::kGpt2:
      return scan_gpt2(chars, begin);
    case Pattern::kLlama3:
      return scan_llama3(chars, begin, row.max_digits);
    case Pattern::kQwen35:
      return scan_qwen35(chars, begin);
    case Pattern::kGpt4o:
      return scan_cased(chars, begin, {.max_digits = row.max_digits, .contractions = true});
    case Pattern::kTekken:
      return scan_cased(chars, begin, {.max_digits = row.max_digits, .contractions = false});
  }
  core::fail<core::InternalError>("text.PreTokenizer: pattern without a scanner");
}

// The end of the part that is scanned in one go: the patterns never look across an isolated digit.
size_t field_end(CharSpan chars, size_t begin) {
  if (chars[begin].is(kNumeric)) return begin + 1;
  size_t end = begin;
  while (end < chars.size() && !chars[end].is(kNumeric)) ++end;
  return end;
}

// Cuts valid UTF-8 into pieces, in order, without gaps.
std::vector<std::string_view> scan(const PreTokenizer& row, std::string_view text) {
  const std::vector<Char> chars = decode_chars(text);
  const auto offset = [&](size_t i) { return i < chars.size() ? chars[i].offset : text.size(); };
  std::vector<std::string_view> pieces;
  for (size_t field = 0; field < chars.size();) {
    const size_t end = row.isolate_digits ? field_end(chars, field) : chars.size();
    const CharSpan scanned = CharSpan(chars).first(end);
    while (field < end) {
      const size_t next = next_end(row, scanned, field);
      pieces.push_back(text.substr(offset(field), offset(next) - offset(field)));
      field = next;
    }
  }
  return pieces;
}

struct KnownPattern {
  std::string_view text;
  PreTokenizer row;
};

// As tokenizer.json files spell them; any other spelling goes through Regex.
constexpr KnownPattern kPatterns[] = {
    {R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
     {.pattern = Pattern::kGpt2}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)re"
     R"re(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {.pattern = Pattern::kLlama3}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)re"
     R"re(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {.pattern = Pattern::kLlama3, .max_digits = 1}},
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|)re"
     R"re(\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {.pattern = Pattern::kQwen35, .max_digits = 1}},
    {R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
     R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)re"
     R"re(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {.pattern = Pattern::kGpt4o}},
    {R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)re"
     R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)re"
     R"re(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     {.pattern = Pattern::kTekken, .max_digits = 1}},
};

}  // namespace

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> names;
  for (const PreTokenizer& row : kPreTokenizers) names.push_back(row.name);
  return names;
}

PieceStep family_step(const PreTokenizer& row) {
  const auto find = [row](std::string_view text) {
    std::vector<TextSpan> spans;
    size_t begin = 0;
    for (const std::string_view piece : scan(row, text)) {
      spans.push_back({begin, begin + piece.size()});
      begin += piece.size();
    }
    return spans;
  };
  return split_step(find, SplitBehavior::kIsolated, false);
}

std::vector<PieceStep> family_steps(const PreTokenizer& row) {
  if (row.sequence.empty()) return {family_step(row)};
  std::vector<PieceStep> steps;
  for (const std::string_view pattern : row.sequence) {
    Regex regex = Regex::parse(pattern, "text.PreTokenizer");
    steps.push_back(split_step(regex_finder(std::move(regex)), SplitBehavior::kIsolated, false));
  }
  return steps;
}

const PreTokenizer* find_pattern(std::string_view pattern) {
  for (const KnownPattern& known : kPatterns) {
    if (known.text == pattern) return &known.row;
  }
  return nullptr;
}

std::string_view pattern_text(const PreTokenizer& row) {
  for (const KnownPattern& known : kPatterns) {
    const bool is_same = known.row.pattern == row.pattern &&
                         (row.pattern == Pattern::kGpt2 || known.row.max_digits == row.max_digits);
    if (is_same) return known.text;
  }
  core::fail<core::InternalError>("text.pattern_text: pattern without a text");
}

std::vector<std::string_view> known_patterns() {
  std::vector<std::string_view> texts;
  for (const KnownPattern& known : kPatterns) texts.push_back(known.text);
  return texts;
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
