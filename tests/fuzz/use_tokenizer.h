#pragma once

#include <string_view>

#include "weft/text/tokenizer/tokenizer.h"

namespace weft::testing {

/// Encodes a fixed text, and the start of `input`, in all ways, and decodes the ids.
void use_tokenizer(const text::Tokenizer& tokenizer, std::string_view input);

}  // namespace weft::testing
