#include "weft/text/tokenizer_impl.h"

#include <limits>

#include "weft/core/error.h"
#include "weft/text/byte_alphabet.h"
#include "weft/text/utf8.h"

namespace weft::text {

using core::check;
using core::ConfigError;
using core::fail;
using core::FormatError;

namespace {

// Tokens that end a turn in published chat formats.
constexpr std::string_view kEndSpellings[] = {"<|im_end|>",    "<|eot_id|>",
                                              "<|eom_id|>",    "<|end|>",
                                              "<|endoftext|>", "<|end_of_text|>",
                                              "<end_of_turn>", "<|end_of_turn|>",
                                              "</s>",          "<|END_OF_TURN_TOKEN|>",
                                              "<|return|>",    "<|eot|>",
                                              "<EOT>",         "<｜end▁of▁sentence｜>"};

struct Model {
  std::string_view name;
};

// Kinds of tokenizers; a second one gets its own source pair and a row here.
constexpr Model kModels[] = {{"gpt2"}};

void check_model(const std::string& name, const std::string& where) {
  std::string known;
  for (const Model& model : kModels) {
    if (model.name == name) return;
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  fail<ConfigError>(where, ": tokenizer model: expected one of ", known, "; got \"", name,
                    "\"; use a model with a byte-level BPE tokenizer");
}

// "<0x0A>" as its byte.
std::string hex_token_bytes(const std::string& token, const std::string& where) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const bool shaped = token.size() == 6 && token.starts_with("<0x") && token[5] == '>' &&
                      digit(token[3]) >= 0 && digit(token[4]) >= 0;
  check<FormatError>(shaped, where, ": expected <0xNN> with two hexadecimal digits, got \"", token,
                     "\"; the file is damaged");
  return std::string(1, static_cast<char>(digit(token[3]) * 16 + digit(token[4])));
}

std::string token_bytes(const std::string& token, TokenKind kind, const std::string& where) {
  check<FormatError>(is_valid_utf8(token), where,
                     ": expected UTF-8, got other bytes; the file is damaged");
  if (kind == TokenKind::kByte) return hex_token_bytes(token, where);
  if (kind != TokenKind::kNormal) return token;
  auto bytes = letters_to_bytes(token);
  check<FormatError>(bytes.has_value(), where, ": expected text in the byte-level alphabet, got \"",
                     token, "\"; the file is damaged or the tokenizer is of another model");
  return *std::move(bytes);
}

void check_special_id(TokenId id, size_t count, const std::string& where) {
  check<FormatError>(id >= -1 && (id < 0 || static_cast<size_t>(id) < count), where,
                     ": expected -1 or an id below ", count, ", got ", id, "; the file is damaged");
}

}  // namespace

Tokenizer::Impl::Impl(Vocabulary source, const std::string& where)
    : vocabulary(std::move(source)), merges(vocabulary.merges.size()) {
  check_model(vocabulary.model, where);
  pre_tokenizer = &find_pre_tokenizer(vocabulary.pre_tokenizer, where);
  if (vocabulary.kinds.empty()) {
    vocabulary.kinds.assign(vocabulary.tokens.size(), TokenKind::kNormal);
  }
  check_sizes(where);
  index_tokens(where);
  index_bytes();
  index_merges(where);
  index_specials();
}

void Tokenizer::Impl::check_id(TokenId id) const {
  check<ConfigError>(id >= 0 && static_cast<size_t>(id) < bytes.size(),
                     "text.Tokenizer: token id: expected 0 to ", bytes.size() - 1, ", got ", id,
                     "; pass ids of this vocabulary");
}

void Tokenizer::Impl::check_sizes(const std::string& where) const {
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

void Tokenizer::Impl::index_tokens(const std::string& where) {
  const size_t count = vocabulary.tokens.size();
  bytes.reserve(count);
  ids.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string& token = vocabulary.tokens[i];
    bytes.push_back(token_bytes(token, kind(id), core::join(where, ": token ", id)));
    const auto [it, fresh] = ids.emplace(token, id);
    check<FormatError>(fresh, where, ": token ", id, ": expected a spelling of its own, got \"",
                       token, "\", which is also token ", it->second, "; the file is damaged");
  }
  if (!pre_tokenizer->ignore_merges) return;
  for (size_t i = 0; i < count; ++i) {
    if (vocabulary.kinds[i] == TokenKind::kNormal) {
      whole_pieces.emplace(bytes[i], static_cast<TokenId>(i));
    }
  }
}

void Tokenizer::Impl::index_bytes() {
  // An unknown token that is a control token must never come out of what a user typed.
  const TokenId unknown = vocabulary.unknown;
  const bool has_unknown = unknown >= 0 && kind(unknown) == TokenKind::kUnknown;
  byte_ids.fill(has_unknown ? unknown : -1);
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter, byte_to_letter(static_cast<uint8_t>(byte)));
    const auto it = ids.find(letter);
    if (it != ids.end() && kind(it->second) != TokenKind::kControl) byte_ids[byte] = it->second;
  }
}

void Tokenizer::Impl::index_merges(const std::string& where) {
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ');
    const bool shaped = space != std::string_view::npos && space > 0 && space + 1 < merge.size() &&
                        merge.find(' ', space + 1) == std::string_view::npos;
    check<FormatError>(shaped, where, ": merge ", rank, ": expected \"left right\", got \"", merge,
                       "\"; the file is damaged");
    const std::string left(merge.substr(0, space)), right(merge.substr(space + 1));
    const auto id_of = [&](const std::string& token) {
      const auto it = ids.find(token);
      check<FormatError>(it != ids.end(), where, ": merge ", rank, " (\"", merge,
                         "\"): expected tokens of the vocabulary, got unknown token \"", token,
                         "\"; the file is damaged");
      return it->second;
    };
    const TokenId left_id = id_of(left), right_id = id_of(right), result = id_of(left + right);
    // A merge must not turn typed text into a control token.
    if (kind(result) == TokenKind::kControl) continue;
    merges.set(left_id, right_id, {static_cast<int32_t>(rank), result});
  }
}

void Tokenizer::Impl::index_specials() {
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenKind kind = vocabulary.kinds[i];
    if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined) {
      specials.add(vocabulary.tokens[i], static_cast<TokenId>(i));
    }
  }
  if (vocabulary.eos >= 0) ends.insert(vocabulary.eos);
  for (const std::string_view spelling : kEndSpellings) {
    const auto it = ids.find(spelling);
    if (it != ids.end() && kind(it->second) != TokenKind::kNormal) ends.insert(it->second);
  }
}

}  // namespace weft::text
