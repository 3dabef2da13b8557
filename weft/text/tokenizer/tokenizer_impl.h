#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "weft/text/bpe/token_index.h"
#include "weft/text/tokenizer/tokenizer_spec.h"

namespace weft::text {

/// A spec with its indices. `ids` points into `spec`.
struct Tokenizer::Impl {
  explicit Impl(TokenizerSpec source);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Kind of a token that exists.
  TokenKind kind(TokenId id) const { return spec.vocabulary.kinds[id]; }
  /// Throws ConfigError for an id that is not in the vocabulary.
  void check_id(TokenId id) const;
  /// Encodes valid UTF-8 of less than 2 GiB; guarded tokens count in the template's stretches.
  std::vector<TokenId> encode(std::string_view text, const Stretches& stretches) const;
  /// Appends the bytes of the next token of a text.
  void decode(TokenId id, DecodeState& state, std::string& out) const;

  TokenizerSpec spec;
  /// By spelling.
  TokenIndex ids;
  /// Added tokens that are looked for in the text itself, and those looked for in its normal form.
  AddedTokenFinder raw_finder;
  AddedTokenFinder normalized_finder;
  std::unordered_set<TokenId> ends;

 private:
  struct Encoding;
  std::string normalize(std::string text) const;
  Stretches normal_stretches(std::string_view text, std::string_view normal,
                             const Stretches& stretches) const;
  void encode_chunk(std::string_view text, const Stretches& stretches, Encoding& encoding) const;
  void encode_normal(std::string_view text, bool is_first, Encoding& encoding) const;
  void index_tokens();
};

}  // namespace weft::text
