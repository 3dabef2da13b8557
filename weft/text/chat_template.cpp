#include "weft/text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/core/json.h"
#include "weft/text/jinja/eval.h"
#include "weft/text/jinja/from_json.h"
#include "weft/text/jinja/syntax/parser.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

struct ChatTemplate::Impl {
  jinja::Body body;
  std::string where;
  std::string source;
  uint64_t source_hash = 0;

  bool mentions(std::string_view words) const { return source.find(words) != std::string::npos; }
};

namespace {

// Words that templates compare roles with. As they are fixed, a template may build control tokens
// of them, e.g. '<|' + role + '|>'; any other role counts as typed by a user.
constexpr std::string_view kKnownRoles[] = {"system", "user",     "assistant", "tool",  "developer",
                                            "model",  "function", "ipython",   "human", "gpt"};

jinja::Value input_text(const std::string& bytes, bool typed) {
  return jinja::Value::text(jinja::Text(to_valid_utf8(bytes), typed));
}

// Templates write arguments as JSON where they are an object.
jinja::Value arguments_value(const std::string& arguments) {
  try {
    return jinja::from_json(arguments, "arguments");
  } catch (const core::FormatError&) {
    return input_text(arguments, true);
  }
}

// What a template wants of a message with calls.
struct CallStyle {
  // It joins arguments to texts, which an object can't be.
  bool has_text_arguments = false;
  // It asks whether there is no content, and that is so of a message of calls alone.
  bool may_have_no_content = false;
  // It takes tools as a text of the system's message and knows neither calls nor results:
  // Phi-4-mini's. Calls are then words, as the model writes them.
  bool has_tools_in_messages = false;
};

jinja::Value calls_value(const std::vector<ToolCall>& calls, const CallStyle& style) {
  const auto key = [](const char* name) { return jinja::Value::text(name); };
  std::vector<jinja::Value> items;
  for (const ToolCall& call : calls) {
    items.push_back(jinja::Value::dict(
        {{key("id"), input_text(call.id, true)},
         {key("type"), key("function")},
         {key("function"),
          jinja::Value::dict(
              {{key("name"), input_text(call.name, true)},
               {key("arguments"), style.has_text_arguments ? input_text(call.arguments, true)
                                                           : arguments_value(call.arguments)}})}}));
  }
  return jinja::Value::list(std::move(items));
}

bool is_json(const std::string& text) {
  try {
    core::parse_json(text, "arguments");
    return true;
  } catch (const core::FormatError&) {
    return false;
  }
}

jinja::Text content_text(const Message& message, const CallStyle& style) {
  jinja::Text content(to_valid_utf8(message.content), true);
  if (!style.has_tools_in_messages || message.tool_calls.empty()) return content;
  std::string calls;
  for (const ToolCall& call : message.tool_calls) {
    const std::string arguments =
        is_json(call.arguments) ? call.arguments : core::dump_json(call.arguments);
    calls += core::join(calls.empty() ? "" : ", ", R"({"name": )", core::dump_json(call.name),
                        R"(, "arguments": )", arguments, "}");
  }
  content.append("<|tool_call|>", false);
  content.append("[" + calls + "]", true);
  content.append("<|/tool_call|>", false);
  return content;
}

jinja::Value message_value(const Message& message, const CallStyle& style) {
  const bool known = std::find(std::begin(kKnownRoles), std::end(kKnownRoles), message.role) !=
                     std::end(kKnownRoles);
  const bool has_no_content =
      style.may_have_no_content && message.content.empty() && !message.tool_calls.empty();
  const bool is_result = style.has_tools_in_messages && message.role == "tool";
  std::vector<std::pair<jinja::Value, jinja::Value>> members = {
      {jinja::Value::text("role"), input_text(is_result ? "tool_response" : message.role, !known)},
      {jinja::Value::text("content"), has_no_content
                                          ? jinja::Value(jinja::None{})
                                          : jinja::Value::text(content_text(message, style))}};
  const auto add = [&](const char* name, const std::string& text) {
    if (!text.empty()) members.emplace_back(jinja::Value::text(name), input_text(text, true));
  };
  add("tool_call_id", message.tool_call_id);
  add("name", message.name);
  add("reasoning_content", message.reasoning);
  add("tools", message.tools);
  if (!message.tool_calls.empty()) {
    members.emplace_back(jinja::Value::text("tool_calls"), calls_value(message.tool_calls, style));
  }
  return jinja::Value::dict(std::move(members));
}

std::vector<Message> with_tools_in_messages(const ChatTemplate::Inputs& inputs) {
  std::vector<Message> messages = inputs.messages;
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (!has_system) messages.insert(messages.begin(), Message{"system", ""});
  std::string tools;
  for (const std::string& tool : inputs.tools) tools += (tools.empty() ? "" : ", ") + tool;
  messages.front().tools = "[" + tools + "]";
  return messages;
}

jinja::Value messages_value(const ChatTemplate::Inputs& inputs, const CallStyle& style) {
  const bool adds_tools = style.has_tools_in_messages && !inputs.tools.empty();
  const auto messages = adds_tools ? with_tools_in_messages(inputs) : inputs.messages;
  std::vector<jinja::Value> items;
  for (const Message& message : messages) items.push_back(message_value(message, style));
  return jinja::Value::list(std::move(items));
}

jinja::Value tools_value(const std::vector<std::string>& tools) {
  if (tools.empty()) return jinja::Value(jinja::None{});
  std::vector<jinja::Value> items;
  for (const std::string& tool : tools) items.push_back(jinja::from_json(tool, "tools"));
  return jinja::Value::list(std::move(items));
}

std::vector<std::pair<std::string, jinja::Value>> names_of(const ChatTemplate::Inputs& inputs,
                                                           const CallStyle& style) {
  std::vector<std::pair<std::string, jinja::Value>> names = {
      {"messages", messages_value(inputs, style)},
      {"bos_token", input_text(inputs.bos_token, false)},
      {"eos_token", input_text(inputs.eos_token, false)},
      {"add_generation_prompt", jinja::Value(inputs.add_generation_prompt)},
      {"tools", tools_value(inputs.tools)},
      {"documents", jinja::Value(jinja::None{})}};
  if (inputs.names.empty()) return names;
  const jinja::Value further = jinja::from_json(inputs.names, "names");
  const jinja::Dict* const dict = further.as_dict();
  core::check<core::FormatError>(dict != nullptr, "names: expected a JSON object");
  for (const auto& [name, value] : dict->entries) {
    names.emplace_back(name.as_text()->bytes(), value);
  }
  return names;
}

// Messages stay on one line whatever a template puts into them.
std::string one_line(std::string text) {
  constexpr size_t kMaxMessage = 500;
  if (text.size() > kMaxMessage) text = text.substr(0, kMaxMessage) + "…";
  text = to_valid_utf8(text);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

}  // namespace

ChatTemplate ChatTemplate::parse(const std::string& source, const std::string& where) {
  core::check<core::FormatError>(is_valid_utf8(source), where,
                                 ": expected UTF-8, got other bytes; the file is damaged");
  ChatTemplate compiled;
  compiled.impl_ =
      std::make_shared<const Impl>(Impl{jinja::parse(source, where), where, source,
                                        core::hash_bytes(std::as_bytes(std::span(source)))});
  return compiled;
}

std::vector<ChatPiece> ChatTemplate::render(const Inputs& inputs) const {
  jinja::Text text;
  std::optional<jinja::Evaluator> evaluator;
  const CallStyle style = {
      impl_->mentions("['arguments'] +") || impl_->mentions("['arguments']+"),
      impl_->mentions("['content'] is none") || impl_->mentions("content is none"),
      has_tools_in_messages()};
  try {
    evaluator.emplace(names_of(inputs, style));
    text = evaluator->run(impl_->body);
  } catch (const jinja::Fault& error) {
    core::fail<core::ConfigError>(impl_->where, ": line ", evaluator ? evaluator->line() : 1, ": ",
                                  one_line(error.what()));
  }
  std::vector<ChatPiece> pieces;
  size_t begin = 0;
  for (const jinja::Text::Run& run : text.runs()) {
    pieces.push_back({text.bytes().substr(begin, run.end - begin), !run.typed});
    begin = run.end;
  }
  return pieces;
}

bool ChatTemplate::mentions(std::string_view words) const { return impl_->mentions(words); }

bool ChatTemplate::has_tools_in_messages() const {
  return mentions("message['tools']") || mentions("message.tools");
}

uint64_t ChatTemplate::source_hash() const { return impl_->source_hash; }

std::string ChatTemplate::render_text(const Inputs& inputs) const {
  std::string text;
  for (const ChatPiece& piece : render(inputs)) text += piece.text;
  return text;
}

}  // namespace weft::text
