#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "weft/generate/options.h"
#include "weft/serve/api/prompts.h"
#include "weft/serve/chat/tool_format.h"
#include "weft/text/chat_template.h"

namespace weft::serve {

/// What /v1/chat/completions and /v1/completions are asked for.
struct CompletionRequest {
  bool is_chat = false;
  /// As SequenceRequest and HttpRequest have them; not the body's.
  size_t client = 0;
  std::string request_id;
  /// As Prompts::adapter_of takes it.
  std::string model;
  /// Of a chat.
  std::vector<text::Message> messages;
  /// Of a chat: what may be called, and further names for the template, a JSON object's text.
  std::vector<Tool> tools;
  ToolChoice tool_choice;
  std::string template_names;
  /// Whether reasoning_effort is among these, which not every template knows.
  bool has_effort = false;
  /// Of a completion; each gets num_choices answers.
  std::vector<PromptInput> prompts;
  /// The answer's text begins with the prompt's.
  bool echoes = false;
  int64_t num_choices = 1;
  bool is_stream = false;
  bool includes_usage = false;
  /// Not given: as many as the context holds, for a completion 16.
  std::optional<int64_t> max_tokens;
  /// Without it draws differ from request to request.
  std::optional<int64_t> seed;
  /// The most tokens and the seed are still to be set.
  generate::TextOptions options;
  /// What an error of the grammar names.
  std::string grammar_field = "response_format";
  /// Fields that mean nothing here.
  std::vector<std::string> unknown;
};

/// Reads a request's body. Throws ApiError, 400, for what OpenAI's API would refuse and for fields
/// that change an answer in a way that weft does not know. `text` is what `body` was parsed from: a
/// schema's members are answered in the order in which they stand there.
CompletionRequest read_chat_request(const nlohmann::json& body, const std::string& text);
CompletionRequest read_completion_request(const nlohmann::json& body, const std::string& text);

}  // namespace weft::serve
