#pragma once

#include <string>
#include <string_view>

#include "weft/text/bpe/token_index.h"
#include "weft/text/tokenizer/tokenizer_spec.h"

namespace weft::text {

/// How SentencePiece writes a space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// `token` with spaces for `kSpaceMark`.
std::string unescape_spaces(std::string_view token);

/// Adds to `spec` that spaces become `kSpaceMark`, and what bytes its <0xNN> tokens stand for.
void add_marked_spaces(TokenizerSpec& spec);

/// Adds to `spec`, whose vocabulary is indexed by `ids`, what makes it SentencePiece's BPE: any two
/// neighbours that are a token together may merge, the one with the best score first, the leftmost
/// of equals (Kudo & Richardson 2018, arXiv 1808.06226; bpe_model.cc). Unknown characters become
/// their <0xNN> tokens. Throws FormatError for scores that do not fit the tokens.
void add_scored_bpe(TokenizerSpec& spec, const TokenIndex& ids, const std::string& where);

}  // namespace weft::text
