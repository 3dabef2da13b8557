#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  /// As ServedModel has it.
  std::string fingerprint = {};
};

/// That of a new answer; `prefix` begins its id.
ReplyHead new_reply_head(const std::string& prefix, bool is_chat, const std::string& model);

/// Tokens that an answer took.
struct Usage {
  int64_t num_prompt = 0;
  int64_t num_reused = 0;
  int64_t num_drawn = 0;
};

/// One answer as far as it has come.
struct Choice {
  std::string text;
  /// Of a chat: what the model has said to itself, and what it calls; a call without a name goes on
  /// with the arguments of the one before it. first_call: how many calls came before these.
  std::string reasoning;
  std::vector<text::ToolCall> calls;
  size_t first_call = 0;
  std::vector<generate::DrawnToken> tokens;
  bool tells_logprobs = false;
  std::optional<SequenceEnd> end;
};

/// "stop", "tool_calls" or "length"; null for other ends and for none.
nlohmann::json finish_reason_json(const Choice& choice);

/// OpenAI's usage object.
nlohmann::json usage_json(const Usage& usage);

/// How an answer's parts become what one path of the API sends. For one answer.
class ReplyForm {
 public:
  virtual ~ReplyForm() = default;
  virtual const std::string& id() const = 0;
  /// The events that begin a stream, given the texts that its choices begin with; empty for none.
  virtual std::string begin_stream(const std::vector<std::string>& first_texts) = 0;
  /// The events that tell what is new in one choice.
  virtual std::string stream_news(size_t index, const Choice& news) = 0;
  /// The events that end a stream, of whose choices texts are not kept. `error` is empty unless it
  /// failed.
  virtual std::string end_stream(const std::vector<Choice>& choices, const Usage& usage,
                                 const std::string& error) = 0;
  /// The body of an answer that is sent whole.
  virtual std::string whole(const std::vector<Choice>& choices, const Usage& usage) = 0;
};

/// Of chat.completion and text_completion. `tokenizer` outlives it; `includes_usage`: a stream ends
/// with that.
std::unique_ptr<ReplyForm> completion_form(ReplyHead head, bool includes_usage,
                                           const text::Tokenizer& tokenizer);

}  // namespace weft::serve
