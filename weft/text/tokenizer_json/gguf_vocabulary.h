#pragma once

#include <string>

#include "weft/text/tokenizer/tokenizer.h"

namespace weft::text {

/// The tokenizer of a Hugging Face folder as a GGUF file's keys hold it, with the name of the
/// pre-tokenizer family that gives the same ids (found by trying each on a text that tells them
/// apart). Where readers of the GGUF know BPE of characters (`knows_characters`), as Gemma 4's do,
/// that may be the tokenizer, too. Throws ConfigError for one of another kind or of no known
/// family, else as read_tokenizer_folder.
Vocabulary read_gguf_vocabulary(const std::string& folder, bool knows_characters = false);

}  // namespace weft::text
