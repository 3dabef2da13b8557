#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/text/tokenizer_json/field.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"

namespace weft::text {

/// Reads a tiktoken.model, which holds tokens and their ranks alone: a line for each, in base64.
/// Numbers of special tokens, their names and the expression that cuts texts are those of Kimi K2's
/// tokenization_kimi.py, which `config` (tokenizer_config.json) must name. `where` begins messages.
/// Throws FormatError for a damaged file, ConfigError for a tokenizer of another script.
TokenizerSpec parse_tiktoken_model(std::string_view text, const std::string& where,
                                   const JsonField& config, const TokenizerChanges& changes);

/// The merges that GGUF and tokenizer.json have in the place of ranks, of the vocabulary that
/// `parse_tiktoken_model` made: for each token of several bytes the two that it is made of.
std::vector<std::string> tiktoken_merges(const Vocabulary& vocabulary);

}  // namespace weft::text
