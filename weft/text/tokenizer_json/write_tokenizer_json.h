#pragma once

#include <string>

#include "weft/text/tokenizer/tokenizer.h"

namespace weft::text {

/// A vocabulary as GGUF files have it (Tokenizer::vocabulary of one) as the text of a
/// tokenizer.json that Hugging Face `tokenizers` reads and that gives the same ids: byte-level BPE
/// with its family's pre-tokenizer, or SentencePiece's BPE with merges made from the scores. Throws
/// ConfigError for a kind that weft does not know.
std::string to_tokenizer_json(const Vocabulary& vocabulary, const std::string& where);

/// The tokenizer_config.json beside it: special tokens, and the chat template unless it is empty.
std::string to_tokenizer_config(const Vocabulary& vocabulary, const std::string& chat_template);

}  // namespace weft::text
