#pragma once

#include <string>
#include <vector>

#include "weft/text/bpe/bpe_model.h"
#include "weft/text/tokenizer/added_tokens.h"
#include "weft/text/tokenizer/text_steps.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::text {

/// Everything that makes a tokenizer, whatever file it came from. Its parts are checked before.
struct TokenizerSpec {
  /// Tokens by id with their kinds, and the ids of special ones; `merges` and `scores` are not
  /// used.
  Vocabulary vocabulary;
  /// What each token stands for in a text.
  std::vector<std::string> bytes;
  std::vector<AddedToken> added;
  std::vector<TextStep> normalizer;
  std::vector<PieceStep> pre_tokenizer;
  BpeModel model;
  /// Ids that go around a text.
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
  /// Tokens that end a turn, besides eos and the usual spellings.
  std::vector<TokenId> ends;
  /// At most this many spaces are removed from the start of a decoded text.
  size_t num_stripped = 0;
  /// All of these are taken off the first token of a decoded text; empty for none.
  std::string stripped_from_first;
};

/// The spec of a vocabulary as a GGUF file has it. Throws as `Tokenizer::make`.
TokenizerSpec spec_of(Vocabulary vocabulary, const std::string& where);

/// The byte that "<0x0A>" spells, or -1 for any other text.
int byte_of_hex_token(std::string_view token);

}  // namespace weft::text
