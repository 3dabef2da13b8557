#include <algorithm>
#include <limits>
#include <ostream>

#include "weft/core/error.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/bpe/sentencepiece.h"
#include "weft/text/bpe/token_index.h"
#include "weft/text/tokenizer/normalize.h"
#include "weft/text/tokenizer/pre_tokenizer.h"
#include "weft/text/tokenizer/tokenizer_spec.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

using core::check;
using core::ConfigError;
using core::fail;
using core::FormatError;

int byte_of_hex_token(std::string_view token) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const int lower = c | 0x20;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  const bool is_shaped = token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
                         digit(token[3]) >= 0 && digit(token[4]) >= 0;
  return is_shaped ? digit(token[3]) * 16 + digit(token[4]) : -1;
}

namespace {

// Where a token stands, to be put into words if it must be.
struct TokenPlace {
  const std::string& where;
  TokenId id;
};

std::ostream& operator<<(std::ostream& out, const TokenPlace& place) {
  return out << place.where << ": token " << place.id;
}

std::string token_bytes(const std::string& token, TokenKind kind, bool is_byte_level,
                        const TokenPlace& where) {
  check<FormatError>(is_valid_utf8(token), where,
                     ": expected UTF-8, got other bytes; the file is damaged");
  if (kind == TokenKind::kByte) {
    const int byte = byte_of_hex_token(token);
    check<FormatError>(byte >= 0, where, ": expected <0xNN> with two hexadecimal digits, got \"",
                       token, "\"; the file is damaged");
    return std::string(1, static_cast<char>(byte));
  }
  if (kind != TokenKind::kNormal && is_byte_level) return token;
  if (!is_byte_level) return unescape_spaces(token);
  auto bytes = letters_to_bytes(token);
  check<FormatError>(bytes.has_value(), where, ": expected text in the byte-level alphabet, got \"",
                     token, "\"; the file is damaged or the tokenizer is of another model");
  return *std::move(bytes);
}

void check_special_id(TokenId id, size_t count, const std::string& where) {
  check<FormatError>(id >= -1 && (id < 0 || static_cast<size_t>(id) < count), where,
                     ": expected -1 or an id below ", count, ", got ", id, "; the file is damaged");
}

void check_sizes(const Vocabulary& vocabulary, const std::string& where) {
  const size_t count = vocabulary.tokens.size();
  check<FormatError>(count > 0 && count <= std::numeric_limits<TokenId>::max(), where,
                     ": tokens: expected 1 to 2147483647, got ", count, "; the file is damaged");
  check<FormatError>(vocabulary.merges.size() <= std::numeric_limits<int32_t>::max(), where,
                     ": merges: expected at most 2147483647, got ", vocabulary.merges.size(),
                     "; the file is damaged");
  check<FormatError>(vocabulary.kinds.size() == count, where, ": token kinds: expected ", count,
                     ", one per token, got ", vocabulary.kinds.size(), "; the file is damaged");
  check_special_id(vocabulary.bos, count, where + ": bos id");
  check_special_id(vocabulary.eos, count, where + ": eos id");
  check_special_id(vocabulary.unknown, count, where + ": unknown id");
}

TokenIndex index_tokens(TokenizerSpec& spec, const std::string& where) {
  const Vocabulary& vocabulary = spec.vocabulary;
  TokenIndex ids(vocabulary.tokens.size());
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& token = vocabulary.tokens[i];
    spec.bytes.push_back(
        token_bytes(token, vocabulary.kinds[i], spec.model.is_byte_level, {where, id}));
    const TokenId before = ids.add(token, id);
    check<FormatError>(before < 0, where, ": token ", id,
                       ": expected a spelling of its own, got \"", token,
                       "\", which is also token ", before, "; the file is damaged");
  }
  return ids;
}

void add_bytes(TokenizerSpec& spec, const TokenIndex& ids) {
  const auto kind = [&](TokenId id) { return spec.vocabulary.kinds[id]; };
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter, byte_to_letter(static_cast<uint8_t>(byte)));
    const TokenId id = ids.find(letter);
    if (id >= 0 && kind(id) != TokenKind::kControl) spec.model.byte_ids[byte] = id;
  }
}

void add_merge(TokenizerSpec& spec, const TokenIndex& ids, size_t rank, const std::string& where) {
  const std::string_view merge = spec.vocabulary.merges[rank];
  const size_t space = merge.find(' ');
  const bool shaped = space != std::string_view::npos && space > 0 && space + 1 < merge.size() &&
                      merge.find(' ', space + 1) == std::string_view::npos;
  check<FormatError>(shaped, where, ": merge ", rank, ": expected \"left right\", got \"", merge,
                     "\"; the file is damaged");
  const std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
  const auto id_of = [&](const std::string& token) {
    const TokenId id = ids.find(token);
    check<FormatError>(id >= 0, where, ": merge ", rank, " (\"", merge,
                       "\"): expected tokens of the vocabulary, got unknown token \"", token,
                       "\"; the file is damaged");
    return id;
  };
  const TokenId left_id = id_of(left), right_id = id_of(right), result = id_of(left + right);
  // A merge must not turn typed text into a control token.
  if (spec.vocabulary.kinds[result] == TokenKind::kControl) return;
  spec.model.merges.set(left_id, right_id, {static_cast<int32_t>(rank), result});
}

void add_merges(TokenizerSpec& spec, const TokenIndex& ids, const std::string& where) {
  const size_t count = spec.vocabulary.merges.size();
  spec.model.merges = MergeTable(count);
  for (size_t rank = 0; rank < count; ++rank) add_merge(spec, ids, rank, where);
}

// Gemma 4's: characters with spaces marked, merged by a list, unknown ones as bytes.
void add_marked_bpe(TokenizerSpec& spec, const TokenIndex& ids, const std::string& where) {
  add_marked_spaces(spec);
  const Vocabulary& vocabulary = spec.vocabulary;
  spec.model.first_part = static_cast<TokenId>(vocabulary.tokens.size());
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string_view token = vocabulary.tokens[i];
    const bool is_text =
        vocabulary.kinds[i] == TokenKind::kNormal || vocabulary.kinds[i] == TokenKind::kUserDefined;
    if (!is_text || token.empty()) continue;
    const Utf8Step step = utf8_step(token);
    if (step.size == token.size()) spec.model.char_ids.emplace(step.code, static_cast<TokenId>(i));
  }
  add_merges(spec, ids, where);
}

void add_byte_level(TokenizerSpec& spec, const TokenIndex& ids, const std::string& where) {
  const Vocabulary& vocabulary = spec.vocabulary;
  const PreTokenizer& family = find_pre_tokenizer(vocabulary.pre_tokenizer, where);
  if (family.nfc) {
    spec.normalizer.push_back([](const std::string& text) { return normalize_nfc(text); });
  }
  spec.pre_tokenizer = family_steps(family);
  add_bytes(spec, ids);
  add_merges(spec, ids, where);
  if (!family.ignore_merges) return;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] == TokenKind::kNormal) {
      spec.model.whole_pieces.emplace(spec.bytes[i], static_cast<TokenId>(i));
    }
  }
}

void add_special_tokens(TokenizerSpec& spec, const std::string& where) {
  const Vocabulary& vocabulary = spec.vocabulary;
  // An unknown token that is a control token must never come out of what a user typed.
  const TokenId unknown = vocabulary.unknown;
  if (unknown >= 0 && vocabulary.kinds[unknown] == TokenKind::kUnknown) {
    spec.model.unknown = unknown;
  }
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenKind kind = vocabulary.kinds[i];
    const bool is_control = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if (!is_control && kind != TokenKind::kUserDefined) continue;
    check<FormatError>(vocabulary.tokens[i].size() <= kMaxAddedToken, where, ": token ", i,
                       ": expected at most ", kMaxAddedToken, " bytes of a special token, got ",
                       vocabulary.tokens[i].size(), "; the file is damaged");
    AddedToken token;
    token.content = vocabulary.tokens[i];
    token.id = static_cast<TokenId>(i);
    token.is_special = is_control;
    // Of SentencePiece's user-defined tokens some are ordinary text, e.g. runs of spaces.
    token.is_guarded = is_control || spec.model.is_byte_level;
    spec.added.push_back(std::move(token));
  }
  if (vocabulary.add_bos && vocabulary.bos >= 0) spec.prefix.push_back(vocabulary.bos);
  if (vocabulary.add_eos && vocabulary.eos >= 0) spec.suffix.push_back(vocabulary.eos);
}

// Kinds of tokenizers, as GGUF names them.
struct ModelKind {
  std::string_view name;
  bool is_byte_level;
  void (*add)(TokenizerSpec&, const TokenIndex&, const std::string&);
};
constexpr ModelKind kModels[] = {{"gpt2", true, add_byte_level},
                                 {"llama", false, add_scored_bpe},
                                 {"gemma4", false, add_marked_bpe}};

const ModelKind& find_model(const std::string& name, const std::string& where) {
  std::string known;
  for (const ModelKind& model : kModels) {
    if (model.name == name) return model;
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  fail<ConfigError>(where, ": tokenizer model: expected one of ", known, "; got \"", name,
                    "\"; use a model with a BPE tokenizer");
}

}  // namespace

TokenizerSpec spec_of(Vocabulary vocabulary, const std::string& where) {
  const ModelKind& model = find_model(vocabulary.model, where);
  if (vocabulary.kinds.empty()) {
    vocabulary.kinds.assign(vocabulary.tokens.size(), TokenKind::kNormal);
  }
  check_sizes(vocabulary, where);
  TokenizerSpec spec;
  spec.vocabulary = std::move(vocabulary);
  spec.model.is_byte_level = model.is_byte_level;
  const TokenIndex ids = index_tokens(spec, where);
  model.add(spec, ids, where);
  add_special_tokens(spec, where);
  return spec;
}

}  // namespace weft::text
