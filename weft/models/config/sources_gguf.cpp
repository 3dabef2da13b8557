#include "weft/models/config/sources_gguf.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "weft/core/error.h"
#include "weft/models/config/sources.h"
#include "weft/text/tokenizer/pre_tokenizer.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;
using text::TokenKind;

constexpr char kTokenList[] = "tokenizer.ggml.tokens";

// llama_token_type of the GGUF specification.
TokenKind token_kind(int64_t type) {
  switch (type) {
    case 2:
      return TokenKind::kUnknown;
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    case 6:
      return TokenKind::kByte;
    default:
      return TokenKind::kNormal;
  }
}

std::vector<TokenKind> token_kinds(const GgufKeys& keys, size_t num_tokens,
                                   const std::string& where) {
  const auto types = keys.integers("tokenizer.ggml.token_type");
  if (!types) return std::vector<TokenKind>(num_tokens, TokenKind::kNormal);
  check<FormatError>(types->size() == num_tokens, where, ": ", types->size(), " token types for ",
                     num_tokens, " tokens");
  std::vector<TokenKind> kinds(num_tokens);
  std::transform(types->begin(), types->end(), kinds.begin(), token_kind);
  return kinds;
}

}  // namespace

const io::MetaValue& GgufKeys::value(const std::string& key) const {
  const auto it = file_.metadata().find(key);
  check<FormatError>(it != file_.metadata().end(), file_.path(), ": missing key '", key, "'");
  return it->second;
}

void GgufKeys::fail_type(const std::string& key, const char* expected) const {
  core::fail<FormatError>(file_.path(), ": key '", key, "': expected ", expected);
}

int64_t GgufKeys::integer(const std::string& key) const {
  const io::MetaValue& found = value(key);
  if (const auto* number = std::get_if<int64_t>(&found)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&found)) {
    if (*number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(*number);
  }
  fail_type(key, "an integer");
}

double GgufKeys::real(const std::string& key) const {
  if (const auto* number = std::get_if<double>(&value(key))) return *number;
  fail_type(key, "a number");
}

std::string GgufKeys::text(const std::string& key) const {
  if (const auto* found = std::get_if<std::string>(&value(key))) return *found;
  fail_type(key, "a string");
}

int64_t GgufKeys::integer_or(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufKeys::real_or(const std::string& key, double fallback) const {
  return has(key) ? real(key) : fallback;
}

std::string GgufKeys::text_or(const std::string& key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

bool GgufKeys::flag_or(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (const auto* found = std::get_if<bool>(&value(key))) return *found;
  fail_type(key, "true or false");
}

const std::vector<std::string>& GgufKeys::texts(const std::string& key) const {
  if (const auto* found = std::get_if<std::vector<std::string>>(&value(key))) return *found;
  fail_type(key, "an array of strings");
}

std::optional<std::vector<int64_t>> GgufKeys::integers(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  const io::MetaValue& found = value(key);
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&found)) return *numbers;
  if (const auto* numbers = std::get_if<std::vector<uint64_t>>(&found)) {
    return std::vector<int64_t>(numbers->begin(), numbers->end());
  }
  fail_type(key, "an array of integers");
}

bool GgufKeys::is_list(const std::string& key) const {
  const io::MetaValue& found = value(key);
  return std::holds_alternative<std::vector<int64_t>>(found) ||
         std::holds_alternative<std::vector<uint64_t>>(found);
}

const std::vector<bool>& GgufKeys::flags(const std::string& key) const {
  if (const auto* found = std::get_if<std::vector<bool>>(&value(key))) return *found;
  fail_type(key, "an array of truth values");
}

std::vector<float> read_floats(const io::TensorFile& file, const std::string& name,
                               int64_t length) {
  const io::TensorMeta& tensor = file.require(name);
  const std::vector<int64_t> expected = {length};
  check<FormatError>(tensor.dtype == io::Dtype::kF32 && tensor.shape == expected, file.path(),
                     ": tensor '", name, "': ", io::info(tensor.dtype).name, " ",
                     core::list_text(tensor.shape), ", expected F32 ", core::list_text(expected));
  std::vector<float> numbers(static_cast<size_t>(length));
  file.read_at(tensor.file, tensor.offset, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

const std::vector<double>& GgufKeys::reals(const std::string& key) const {
  if (const auto* found = std::get_if<std::vector<double>>(&value(key))) return *found;
  fail_type(key, "an array of numbers");
}

namespace {

// An id by the name of its key; `fallback` for a missing one, if there is such a token.
text::TokenId token_id(const GgufKeys& keys, const std::string& name, text::TokenId fallback,
                       const std::string& where) {
  const auto count = static_cast<int64_t>(keys.texts(kTokenList).size());
  const std::string key = core::join("tokenizer.ggml.", name, "_token_id");
  const int64_t id = keys.integer_or(key, fallback < count ? fallback : -1);
  check<FormatError>(id >= -1 && id < count, where, ": key '", key, "' is ", id,
                     ", expected below ", count);
  return static_cast<text::TokenId>(id);
}

// SentencePiece's BPE has scores instead of merges, and keys that older files leave out.
void add_sentencepiece(const GgufKeys& keys, text::Vocabulary& vocabulary) {
  const std::vector<double>& scores = keys.reals("tokenizer.ggml.scores");
  vocabulary.scores.assign(scores.begin(), scores.end());
  vocabulary.add_space_prefix = keys.flag_or("tokenizer.ggml.add_space_prefix", true);
}

// Many files of such a family lack the key.
bool adds_bos(const text::Vocabulary& vocabulary, const std::string& where) {
  return vocabulary.model == "gpt2" &&
         text::find_pre_tokenizer(vocabulary.pre_tokenizer, where).adds_bos;
}

}  // namespace

text::Tokenizer tokenizer_from_gguf(const io::TensorFile& file) {
  const GgufKeys keys(file);
  text::Vocabulary vocabulary;
  vocabulary.model = keys.text("tokenizer.ggml.model");
  const bool is_sentencepiece = vocabulary.model == "llama";
  vocabulary.pre_tokenizer = keys.text_or("tokenizer.ggml.pre", "default");
  vocabulary.tokens = keys.texts(kTokenList);
  vocabulary.kinds = token_kinds(keys, vocabulary.tokens.size(), file.path());
  if (keys.has("tokenizer.ggml.merges")) vocabulary.merges = keys.texts("tokenizer.ggml.merges");
  if (is_sentencepiece) add_sentencepiece(keys, vocabulary);
  vocabulary.bos = token_id(keys, "bos", is_sentencepiece ? 1 : -1, file.path());
  vocabulary.eos = token_id(keys, "eos", is_sentencepiece ? 2 : -1, file.path());
  vocabulary.unknown = token_id(keys, "unknown", is_sentencepiece ? 0 : -1, file.path());
  vocabulary.add_bos = keys.flag_or("tokenizer.ggml.add_bos_token",
                                    is_sentencepiece || adds_bos(vocabulary, file.path()));
  vocabulary.add_eos = keys.flag_or("tokenizer.ggml.add_eos_token", false);
  return text::Tokenizer::make(std::move(vocabulary), file.path());
}

std::optional<text::ChatTemplate> chat_template_from_gguf(const io::TensorFile& file) {
  const GgufKeys keys(file);
  if (!keys.has("tokenizer.chat_template")) return std::nullopt;
  return text::ChatTemplate::parse(keys.text("tokenizer.chat_template"),
                                   file.path() + ": tokenizer.chat_template");
}

}  // namespace weft::models
