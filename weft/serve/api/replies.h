#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/engine/sequence.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::serve {

/// What all objects of one answer say.
struct ReplyHead {
  bool is_chat = false;
  std::string id;
  int64_t created = 0;
  std::string model;
};

/// Tokens that an answer took.
struct Usage {
  int64_t num_prompt = 0;
  int64_t num_reused = 0;
  int64_t num_drawn = 0;
};

/// One answer as far as it has come.
struct Choice {
  std::string text;
  /// Of a chat: what the model has said to itself, and what it calls; first_call: how many calls
  /// came before these.
  std::string reasoning;
  std::vector<text::ToolCall> calls;
  size_t first_call = 0;
  std::vector<DrawnToken> tokens;
  bool tells_logprobs = false;
  std::optional<SequenceEnd> end;
};

/// "stop", "tool_calls" or "length"; null for other ends and for none.
nlohmann::json finish_reason_json(const Choice& choice);

/// OpenAI's usage object.
nlohmann::json usage_json(const Usage& usage);

/// chat.completion or text_completion.
nlohmann::json whole_reply(const ReplyHead& head, const std::vector<Choice>& choices,
                           const Usage& usage, const text::Tokenizer& tokenizer);

/// chat.completion.chunk or text_completion of what is new in one choice. `is_first`: it says the
/// role, too.
nlohmann::json reply_chunk(const ReplyHead& head, size_t index, const Choice& news, bool is_first,
                           const text::Tokenizer& tokenizer);

/// The chunk without choices that ends a stream whose client wants to know its usage.
nlohmann::json usage_chunk(const ReplyHead& head, const Usage& usage);

}  // namespace weft::serve
