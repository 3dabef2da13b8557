#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "weft/text/tokenizer_json/field.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"

namespace weft::text {

using TokenIds = std::unordered_map<std::string, TokenId>;

// Readers of tokenizer.json's parts. All throw as parse_tokenizer_json.

/// `normalizer`.
std::vector<TextStep> read_normalizer(const JsonField& field);
/// `pattern` of a Split or Replace: {"String": …} or {"Regex": …}.
TextFinder read_pattern(const JsonField& field);

/// What a pre-tokenizer says.
struct PreTokenizerPart {
  std::vector<PieceStep> steps;
  bool is_byte_level = false;
};
/// `pre_tokenizer`.
PreTokenizerPart read_pre_tokenizer(const JsonField& field, const TokenizerChanges& changes);

/// What a decoder says.
struct DecoderPart {
  bool is_byte_level = false;
  bool has_byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replacements;
  size_t num_stripped = 0;
  std::string stripped_from_first;

  /// What a token stands for.
  std::string bytes(const std::string& token, bool is_added) const;
};
/// `decoder`.
DecoderPart read_decoder(const JsonField& field);

/// `model.vocab`: tokens by id. No hole, no id twice.
std::vector<std::string> read_vocab(const JsonField& field);
/// `model`, into `spec`, whose vocabulary holds the model's `num_tokens` tokens first.
void read_model(const JsonField& field, size_t num_tokens, TokenizerSpec& spec);

/// `added_tokens`, with what `changes` adds. Their ids are those that Hugging Face gives them.
std::vector<AddedToken> read_added_tokens(const JsonField& field, const TokenIds& ids,
                                          const TokenizerChanges& changes);

/// `post_processor`: the ids around a text.
void read_post_processor(const JsonField& field, TokenizerSpec& spec);

}  // namespace weft::text
