#pragma once

#include <string>

#include "weft/text/tokenizer/tokenizer.h"

namespace weft::text {

/// The tokenizer of a Hugging Face folder as a GGUF file's keys hold it, with the name of the
/// pre-tokenizer family that gives the same ids (found by trying each on a text that tells them
/// apart). Throws ConfigError for a tokenizer that isn't byte-level BPE or is of no known family,
/// else as read_tokenizer_folder.
Vocabulary read_gguf_vocabulary(const std::string& folder);

}  // namespace weft::text
