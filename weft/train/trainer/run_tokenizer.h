#pragma once

#include <string>

#include "weft/train/data/document_tokens.h"

namespace weft::train {

/// A tokenizer with its chat template, from a Hugging Face folder, its tokenizer.json or a .gguf
/// file. Throws FormatError, ConfigError.
DocumentTokenizer open_run_tokenizer(const std::string& path);

}  // namespace weft::train
