#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/tokenizer/tokenizer_spec.h"

namespace weft::text {

/// What the files beside a tokenizer.json change in it, as Hugging Face transformers does.
struct TokenizerChanges {
  /// Tokens that are added, or whose options change. One with an id of -1 gets its own, or the
  /// next.
  std::vector<AddedToken> added;
  /// Of a pre-tokenizer that is ByteLevel alone.
  std::optional<bool> add_prefix_space;
};

/// Reads a tokenizer.json of Hugging Face `tokenizers`, with a BPE model. `where` begins messages.
/// Throws FormatError for damaged text, ConfigError, with the name of the field, for everything
/// that weft does not do as that package does. `truncation` and `padding` are not used, as
/// transformers resets both on every call.
TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& where,
                                   const TokenizerChanges& changes = {});

}  // namespace weft::text
