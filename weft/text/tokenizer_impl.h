#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "weft/text/bpe.h"
#include "weft/text/pre_tokenizer.h"
#include "weft/text/spelling_trie.h"
#include "weft/text/tokenizer.h"

namespace weft::text {

/// What `Tokenizer::make` builds of a vocabulary. Views point into `vocabulary` and `bytes`.
struct Tokenizer::Impl {
  /// Throws as `Tokenizer::make`.
  Impl(Vocabulary source, const std::string& where);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Kind of a token that exists.
  TokenKind kind(TokenId id) const { return vocabulary.kinds[id]; }
  /// Throws ConfigError for an id that is not in the vocabulary.
  void check_id(TokenId id) const;
  /// Encodes valid UTF-8 in which no special spelling counts.
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;
  /// Encodes valid UTF-8. `stretch_end(at)` says where the stretch around offset `at` ends in which
  /// special spellings count, `at` itself if they do not count there. Offsets come in order.
  template <class StretchEnd>
  std::vector<TokenId> encode_special(std::string_view text, StretchEnd stretch_end) const;

  Vocabulary vocabulary;
  const PreTokenizer* pre_tokenizer = nullptr;
  /// What each token stands for in a text.
  std::vector<std::string> bytes;
  /// By spelling.
  std::unordered_map<std::string_view, TokenId> ids;
  std::array<TokenId, 256> byte_ids{};
  MergeTable merges;
  /// Normal tokens by their bytes, for pre-tokenizers that ignore merges; else empty.
  std::unordered_map<std::string_view, TokenId> whole_pieces;
  SpellingTrie specials;
  std::unordered_set<TokenId> ends;

 private:
  void check_sizes(const std::string& where) const;
  void index_tokens(const std::string& where);
  void index_bytes();
  void index_merges(const std::string& where);
  void index_specials();
};

}  // namespace weft::text
