#include "weft/serve/chat/tool_format.h"

#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"

namespace weft::serve {
namespace {

using nlohmann::json;

// What stands before and behind a call's arguments.
struct Frame {
  std::string begin, end;
};

Frame frame_of(ToolFormat format, const std::string& name) {
  const std::string quoted = core::dump_json(name);
  switch (format) {
    case ToolFormat::kHermes:
      return {"<tool_call>\n{\"name\": " + quoted + ", \"arguments\": ", "}\n</tool_call>"};
    case ToolFormat::kLlama:
      return {"{\"name\": " + quoted + ", \"parameters\": ", "}"};
    case ToolFormat::kMistral:
      return {"[{\"name\": " + quoted + ", \"arguments\": ", "}]"};
  }
  core::fail<core::InternalError>("serve: unknown format of tools");
}

// Arguments that need not keep to their schema are any object.
std::string tag_of(ToolFormat format, const Tool& tool, bool is_held) {
  const Frame frame = frame_of(format, tool.name);
  std::string schema = tool.parameters.empty() ? R"({"type": "object"})" : tool.parameters;
  if (!is_held) schema = R"({"type": "object", "additionalProperties": true})";
  return core::join(R"({"type": "tag", "begin": )", core::dump_json(frame.begin),
                    R"(, "content": {"type": "json_schema", "json_schema": )", schema,
                    R"(}, "end": )", core::dump_json(frame.end), "}");
}

std::string call_text(const text::ToolCall& call) {
  return core::join("<tool_call>\n{\"name\": ", core::dump_json(call.name),
                    ", \"arguments\": ", call.arguments, "}\n</tool_call>");
}

}  // namespace

ToolFormat tool_format_of(const text::ChatTemplate& chat_template) {
  if (chat_template.mentions("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (chat_template.mentions("<tool_call>")) return ToolFormat::kHermes;
  const bool is_llama =
      chat_template.mentions("<|python_tag|>") || chat_template.mentions("Environment: ipython");
  return is_llama ? ToolFormat::kLlama : ToolFormat::kHermes;
}

std::vector<text::Message> with_tools_in_words(const std::vector<text::Message>& messages,
                                               const std::vector<Tool>& tools) {
  std::string words =
      "You may call functions to help with the user's question. Their signatures stand between "
      "<tools></tools>:\n<tools>";
  for (const Tool& tool : tools) words += "\n" + tool.json;
  words +=
      "\n</tools>\nFor each call answer with a JSON object between <tool_call></tool_call>:\n"
      "<tool_call>\n{\"name\": <function's name>, \"arguments\": <object of arguments>}\n"
      "</tool_call>";
  std::vector<text::Message> said;
  const bool has_system = !messages.empty() && messages.front().role == "system";
  const std::string before = has_system ? messages.front().content + "\n\n" : "";
  if (!tools.empty()) said.push_back({"system", before + words});
  for (size_t i = !tools.empty() && has_system ? 1 : 0; i < messages.size(); ++i) {
    text::Message message = messages[i];
    if (message.role == "tool") {
      message = {"user", "<tool_response>\n" + message.content + "\n</tool_response>"};
    }
    for (const text::ToolCall& call : message.tool_calls) {
      message.content += (message.content.empty() ? "" : "\n") + call_text(call);
    }
    message.tool_calls.clear();
    said.push_back(std::move(message));
  }
  return said;
}

std::string structural_tag_of(ToolFormat format, const std::vector<Tool>& tools,
                              const ToolChoice& choice) {
  std::string tags;
  const bool is_required = choice.kind == ToolChoice::Kind::kRequired;
  for (const Tool& tool : tools) {
    const bool is_meant = choice.name.empty() || choice.name == tool.name;
    if (!is_meant) continue;
    tags += (tags.empty() ? "" : ", ") + tag_of(format, tool, is_required || tool.is_strict);
  }
  const bool is_one = !choice.is_parallel || !choice.name.empty() || format != ToolFormat::kHermes;
  const std::string end = is_one ? R"(, "stop_after_first": true)" : "";
  if (is_required) {
    return core::join(
        R"({"type": "structural_tag", "format": {"type": "tags_with_separator", "tags": [)", tags,
        R"(], "separator": "\n", "at_least_one": true)", end, "}}");
  }
  return core::join(
      R"({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": )",
      R"(["<tool_call>"], "tags": [)", tags, "]", choice.is_parallel ? "" : end, "}}");
}

}  // namespace weft::serve
