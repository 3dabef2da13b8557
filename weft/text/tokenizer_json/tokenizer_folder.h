#pragma once

#include <map>
#include <string>

#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::text {

/// A tokenizer as a Hugging Face folder has it.
struct LoadedTokenizer {
  /// Its `vocabulary()` knows bos and eos, its `prefix()` and `suffix()` what goes around a text,
  /// its `is_end` also the ends that generation_config.json names.
  Tokenizer tokenizer;
  /// Spellings of special tokens, as templates are given them; empty where there is none.
  std::string bos_token;
  std::string eos_token;
  std::string unk_token;
  std::string pad_token;
  /// Sources of chat templates by name; that of a model with only one is "default".
  std::map<std::string, std::string> chat_templates;
  /// The folder, for messages.
  std::string folder;

  /// The compiled template of that name. Throws ConfigError if there is none, else as
  /// `ChatTemplate::parse`.
  ChatTemplate chat_template(const std::string& name = "default") const;
};

/// Reads tokenizer.json of `folder`, or where it has none Kimi's tiktoken.model, and, where they
/// exist, tokenizer_config.json, special_tokens_map.json, generation_config.json or config.json
/// (eos_token_id), chat_template.jinja and additional_chat_templates/*.jinja. What the first three
/// say about tokens counts as in Hugging Face transformers 4.57 (PreTrainedTokenizerFast and the
/// classes that make their own post-processor: Llama, Gemma, Cohere, GPT-NeoX). Throws FormatError
/// for a folder without either and for damaged files, ConfigError for what is not supported.
LoadedTokenizer read_tokenizer_folder(const std::string& folder);

}  // namespace weft::text
