#include "weft/serve/chat/tool_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {
namespace {

std::string call_text(const text::ToolCall& call) {
  return core::join("<tool_call>\n{\"name\": ", core::dump_json(call.name),
                    ", \"arguments\": ", call.arguments, "}\n</tool_call>");
}

}  // namespace

ToolFormat tool_format_of(const text::ChatTemplate& chat_template) {
  const auto has_all = [&](const std::vector<std::string_view>& words) {
    return std::ranges::all_of(words,
                               [&](std::string_view word) { return chat_template.mentions(word); });
  };
  for (const ToolFamily& family : tool_families()) {
    if (std::ranges::any_of(family.shown_by, has_all)) return family.format;
  }
  return ToolFormat::kHermes;
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

}  // namespace weft::serve
