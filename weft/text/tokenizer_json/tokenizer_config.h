#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/text/tokenizer_json/field.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"

namespace weft::text {

/// What tokenizer_config.json and special_tokens_map.json say.
struct TokenizerConfig {
  TokenizerChanges changes;
  /// Spellings by name without "_token": bos, eos, unk, pad, …
  std::map<std::string, std::string> special;
  std::map<std::string, std::string> chat_templates;
  /// Where the tokenizer's class puts bos and eos around a text, whatever tokenizer.json says.
  struct Around {
    bool bos = false;
    bool eos = false;
  };
  std::optional<Around> around;

  /// The spelling of a special token, or nothing.
  std::string spelling(const std::string& name) const;
};

/// Both may be null. Throws FormatError for wrong types, ConfigError for what is not supported.
TokenizerConfig read_tokenizer_config(const JsonField& config, const JsonField& special_tokens_map);

}  // namespace weft::text
