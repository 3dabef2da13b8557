#include "weft/serve/responses/response_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/fields.h"
#include "weft/serve/chat/member_text.h"

namespace weft::serve {
namespace {

using nlohmann::json;

constexpr size_t kMostItems = 4096;
constexpr int64_t kMostOutputTokens = INT32_MAX;

// What would change an answer in a way that this server does not know, but for these values.
const std::vector<std::pair<const char*, json>>& unsupported_fields() {
  static const std::vector<std::pair<const char*, json>> table = {
      {"background", false},
      {"context_management", nullptr},
      {"conversation", nullptr},
      {"include", json::array()},
      {"max_tool_calls", nullptr},
      {"n", 1},
      {"previous_response_id", nullptr},
      {"prompt", nullptr},
      {"top_logprobs", 0},
      {"truncation", "disabled"},
  };
  return table;
}

// Of the same names and meaning in chat completions.
constexpr std::array kShared = {"model",
                                "temperature",
                                "top_p",
                                "stream",
                                "stream_options",
                                "parallel_tool_calls",
                                "user",
                                "store",
                                "metadata",
                                "service_tier",
                                "safety_identifier",
                                "prompt_cache_key",
                                "seed",
                                "top_k",
                                "min_p",
                                "stop",
                                "presence_penalty",
                                "frequency_penalty",
                                "repetition_penalty",
                                "repeat_penalty",
                                "repeat_last_n",
                                "ignore_eos",
                                "logit_bias",
                                "chat_template_kwargs"};

std::string read_parts(const json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw ApiError::invalid(where, "expected a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = core::join(where, "[", i, "]");
    if (!content[i].is_object()) throw ApiError::invalid(place, "expected an object");
    Fields part(content[i]);
    const std::string type = part.string("type").value_or("");
    if (type != "input_text" && type != "output_text" && type != "text") {
      throw ApiError::invalid(place + ".type",
                              core::join("got ", core::quote(type),
                                         ", expected input_text or output_text; this model reads "
                                         "nothing else"));
    }
    text += part.string("text").value_or("");
  }
  return text;
}

json chat_call(Fields& item) {
  const std::string name = item.string("name").value_or("");
  const std::string arguments = item.string("arguments").value_or("{}");
  return {{"id", item.string("call_id").value_or("")},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", arguments}}}};
}

json message_of(Fields& item, const std::string& where) {
  const json* const content = item.get("content");
  if (content == nullptr) throw ApiError::invalid(where + ".content", "missing, expected a text");
  const std::string role = item.string("role").value_or("");
  constexpr std::array kRoles = {"user", "assistant", "system", "developer"};
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    throw ApiError::invalid(
        where + ".role",
        core::join("got ", core::quote(role), ", expected user, assistant, system or developer"));
  }
  return {{"role", role}, {"content", read_parts(*content, where + ".content")}};
}

// Calls stand in one message with the assistant's words before them.
void add_call(json& messages, json call) {
  if (messages.empty() || messages.back().at("role") != "assistant") {
    messages.push_back({{"role", "assistant"}, {"content", nullptr}});
  }
  messages.back()["tool_calls"].push_back(std::move(call));
}

void add_item(json& messages, const json& value, const std::string& where) {
  if (!value.is_object()) throw ApiError::invalid(where, "expected an object");
  Fields item(value);
  const std::string type = item.string("type").value_or("message");
  if (type == "message") {
    messages.push_back(message_of(item, where));
  } else if (type == "function_call") {
    add_call(messages, chat_call(item));
  } else if (type == "function_call_output") {
    const json* const output = item.get("output");
    if (output == nullptr) throw ApiError::invalid(where + ".output", "missing, expected a text");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", item.string("call_id").value_or("")},
                        {"content", read_parts(*output, where + ".output")}});
  } else if (type != "reasoning") {
    // What a model said to itself is left out, as templates do with earlier turns.
    throw ApiError::invalid(where + ".type", core::join("got ", core::quote(type),
                                                        ", expected message, function_call, "
                                                        "function_call_output or reasoning"));
  }
}

json read_messages(Fields& fields) {
  json messages = json::array();
  if (const auto words = fields.string("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *words}});
  }
  const json* const input = fields.get("input");
  if (input == nullptr) throw ApiError::invalid("input", "missing, expected a text or a list");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return messages;
  }
  if (!input->is_array() || input->empty() || input->size() > kMostItems) {
    throw ApiError::invalid("input",
                            core::join("expected a text or a list of 1 to ", kMostItems, " items"));
  }
  for (size_t i = 0; i < input->size(); ++i) {
    add_item(messages, (*input)[i], core::join("input[", i, "]"));
  }
  if (messages.empty()) throw ApiError::invalid("input", "no message, expected at least one");
  return messages;
}

// A member's text as the client wrote it: the order of a schema's members counts.
std::string written(const std::string& text, const std::vector<std::string>& path,
                    const json& value) {
  return member_text(text, path).value_or(core::dump_json(value));
}

// As a chat's response_format; empty: none.
std::string chat_format(Fields& fields, const std::string& text) {
  const json* const given = fields.get("text");
  if (given == nullptr) return "";
  Fields of_text(*given, "text");
  of_text.refuse_unless("verbosity", "medium");
  const json* const format = of_text.get("format");
  if (format == nullptr) return "";
  Fields of_format(*format, "text.format");
  const std::string type = of_format.string("type").value_or("");
  if (type == "text") return "";
  if (type == "json_object") return R"({"type": "json_object"})";
  const json* const schema = of_format.get("schema");
  if (type != "json_schema") {
    throw ApiError::invalid(
        "text.format.type",
        core::join("got ", core::quote(type), ", expected text, json_object or json_schema"));
  }
  if (schema == nullptr || !schema->is_object()) {
    throw ApiError::invalid("text.format.schema", "expected a JSON schema");
  }
  return R"({"type": "json_schema", "json_schema": {"schema": )" +
         written(text, {"text", "format", "schema"}, *schema) + "}}";
}

// As a chat's reasoning_effort; empty: none.
std::string chat_effort(Fields& fields) {
  const json* const given = fields.get("reasoning");
  if (given == nullptr) return "";
  Fields of_reasoning(*given, "reasoning");
  const auto effort = of_reasoning.string("effort");
  const auto unknown = of_reasoning.unknown();
  if (!unknown.empty()) {
    throw ApiError::invalid("reasoning." + unknown.front(), "not supported, expected effort alone");
  }
  return effort ? core::dump_json(*effort) : "";
}

// A chat's tool has all but the type in a member of its own.
std::string chat_tool(const json& tool, const std::string& text, const std::string& where) {
  Fields fields(tool, where);
  const std::string type = fields.string("type").value_or("");
  if (type != "function") {
    throw ApiError::invalid(where + ".type", core::join("got ", core::quote(type),
                                                        ", expected function; there are no other "
                                                        "tools"));
  }
  std::string members;
  for (const char* name : {"name", "description", "parameters", "strict"}) {
    const json* const value = fields.get(name);
    if (value == nullptr) continue;
    if (!members.empty()) members += ", ";
    members += core::join('"', name, "\": ", written(text, {name}, *value));
  }
  return R"({"type": "function", "function": {)" + members + "}}";
}

std::string chat_tools(Fields& fields, const std::string& text) {
  const json* const tools = fields.get("tools");
  if (tools == nullptr) return "";
  if (!tools->is_array()) throw ApiError::invalid("tools", "expected a list");
  const auto texts = element_texts(written(text, {"tools"}, *tools));
  std::string list;
  for (size_t i = 0; i < tools->size(); ++i) {
    if (i > 0) list += ", ";
    list += chat_tool((*tools)[i], texts[i], core::join("tools[", i, "]"));
  }
  return "[" + list + "]";
}

// {"type": "function", "name": …} is {"type": "function", "function": {"name": …}} in a chat.
json chat_tool_choice(Fields& fields) {
  const json* const choice = fields.get("tool_choice");
  if (choice == nullptr || !choice->is_object()) return choice == nullptr ? json() : *choice;
  Fields of_choice(*choice);
  if (of_choice.string("type").value_or("") != "function") {
    throw ApiError::invalid("tool_choice.type", "expected function");
  }
  return {{"type", "function"}, {"function", {{"name", of_choice.string("name").value_or("")}}}};
}

// The request as a chat's body.
std::string chat_text(Fields& fields, const std::string& text) {
  std::string chat = R"({"messages": )" + core::dump_json(read_messages(fields));
  const auto add = [&chat](const std::string& name, const std::string& value) {
    if (!value.empty()) chat += core::join(", \"", name, "\": ", value);
  };
  for (const char* name : kShared) {
    if (const json* const value = fields.get(name)) add(name, core::dump_json(*value));
  }
  if (const auto most = fields.integer("max_output_tokens", 1, kMostOutputTokens)) {
    add("max_tokens", core::join(*most));
  }
  add("reasoning_effort", chat_effort(fields));
  add("response_format", chat_format(fields, text));
  add("tools", chat_tools(fields, text));
  const json choice = chat_tool_choice(fields);
  if (!choice.is_null()) add("tool_choice", core::dump_json(choice));
  return chat + "}";
}

}  // namespace

ResponseRequest read_response_request(const json& body, const std::string& text) {
  Fields fields(body);
  for (const auto& [name, harmless] : unsupported_fields()) fields.refuse_unless(name, harmless);
  const std::string chat = chat_text(fields, text);
  ResponseRequest request;
  request.completion = read_chat_request(json::parse(chat), chat);
  request.completion.grammar_field = "text.format";
  request.completion.unknown = fields.unknown();
  const auto given = [&body](const char* name, const json& otherwise) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? otherwise : *found;
  };
  request.echo = {{"instructions", given("instructions", nullptr)},
                  {"max_output_tokens", given("max_output_tokens", nullptr)},
                  {"metadata", given("metadata", json::object())},
                  {"parallel_tool_calls", given("parallel_tool_calls", true)},
                  {"temperature", given("temperature", 1)},
                  {"text", given("text", {{"format", {{"type", "text"}}}})},
                  {"tool_choice", given("tool_choice", "auto")},
                  {"tools", given("tools", json::array())},
                  {"top_p", given("top_p", 1)},
                  {"user", given("user", nullptr)}};
  return request;
}

}  // namespace weft::serve
