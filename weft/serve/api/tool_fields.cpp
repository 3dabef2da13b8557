#include "weft/serve/api/tool_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/grammar/schema.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/chat/member_text.h"

namespace weft::serve {
namespace {

using nlohmann::json;

constexpr size_t kMostTools = 128;
constexpr size_t kMostNameBytes = 64;

// OpenAI's letters.
std::string read_name(Fields& function, const std::string& where) {
  const std::string name = function.string("name").value_or("");
  const bool is_name = !name.empty() && name.size() <= kMostNameBytes &&
                       std::ranges::all_of(name, [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
                       });
  if (is_name) return name;
  throw ApiError::invalid(where + ".name",
                          core::join("got ", core::quote(name), ", expected 1 to ", kMostNameBytes,
                                     " letters, digits, _, - and ."));
}

Tool read_tool(const json& object, const std::string& text, const std::string& where) {
  if (!object.is_object()) throw ApiError::invalid(where, "expected an object");
  Fields fields(object);
  if (fields.string("type").value_or("function") != "function") {
    throw ApiError::invalid(where + ".type", "expected function; there are no other tools");
  }
  const json* const function = fields.get("function");
  if (function == nullptr || !function->is_object()) {
    throw ApiError::invalid(where + ".function", "missing, expected an object");
  }
  Fields of_function(*function);
  Tool tool;
  tool.name = read_name(of_function, where + ".function");
  tool.description = of_function.string("description").value_or("");
  tool.is_strict = of_function.boolean("strict").value_or(false);
  const json* const parameters = of_function.get("parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    throw ApiError::invalid(where + ".function.parameters", "expected a JSON schema");
  }
  if (parameters != nullptr) {
    tool.parameters =
        member_text(text, {"function", "parameters"}).value_or(core::dump_json(*parameters));
  }
  tool.json = text;
  return tool;
}

void read_choice(Fields& fields, CompletionRequest& request) {
  ToolChoice& choice = request.tool_choice;
  choice.is_parallel = fields.boolean("parallel_tool_calls").value_or(true);
  const json* const given = fields.get("tool_choice");
  if (given == nullptr) return;
  if (given->is_object()) {
    const json function = given->value("function", json::object());
    choice.kind = ToolChoice::Kind::kRequired;
    const bool has_name = function.is_object() && function.contains("name");
    if (!has_name || !function["name"].is_string()) {
      throw ApiError::invalid("tool_choice", "expected an object with a function's name");
    }
    choice.name = function["name"].get<std::string>();
    const bool is_known = std::ranges::any_of(
        request.tools, [&](const Tool& tool) { return tool.name == choice.name; });
    if (is_known) return;
    throw ApiError::invalid("tool_choice", core::join("the function ", core::quote(choice.name),
                                                      ", expected one of tools"));
  }
  const std::string name = fields.string("tool_choice").value_or("");
  if (name == "none") choice.kind = ToolChoice::Kind::kNone;
  if (name == "required") choice.kind = ToolChoice::Kind::kRequired;
  if (name != "none" && name != "required" && name != "auto") {
    throw ApiError::invalid("tool_choice", core::join("got ", core::quote(name),
                                                      ", expected none, auto, required or a "
                                                      "function"));
  }
  if (choice.kind == ToolChoice::Kind::kRequired && request.tools.empty()) {
    throw ApiError::invalid("tool_choice", "required without tools; give some");
  }
}

// A schema that holds has to be one that can be kept to.
void check_parameters(const CompletionRequest& request) {
  const bool is_required = request.tool_choice.kind == ToolChoice::Kind::kRequired;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const Tool& tool = request.tools[i];
    const bool is_held = is_required ? is_meant(tool, request.tool_choice) : tool.is_strict;
    if (tool.parameters.empty() || !is_held) continue;
    try {
      grammar::check_schema(tool.parameters);
    } catch (const core::ConfigError& error) {
      throw ApiError::invalid(core::join("tools[", i, "].function.parameters"), error.what());
    }
  }
}

}  // namespace

void read_tools(Fields& fields, const std::string& text, CompletionRequest& request) {
  const json* const tools = fields.get("tools");
  if (tools != nullptr) {
    if (!tools->is_array() || tools->size() > kMostTools) {
      throw ApiError::invalid("tools", core::join("expected a list of at most ", kMostTools));
    }
    auto texts = element_texts(member_text(text, {"tools"}).value_or(core::dump_json(*tools)));
    for (size_t i = 0; i < tools->size(); ++i) {
      request.tools.push_back(read_tool((*tools)[i], texts[i], core::join("tools[", i, "]")));
    }
  }
  read_choice(fields, request);
  // What may not be called need not be known.
  if (request.tool_choice.kind == ToolChoice::Kind::kNone) request.tools.clear();
  check_parameters(request);
}

std::vector<text::ToolCall> read_calls(Fields& fields, const std::string& where) {
  std::vector<text::ToolCall> calls;
  const json* const list = fields.get("tool_calls");
  if (list == nullptr) return calls;
  if (!list->is_array()) throw ApiError::invalid(where + ".tool_calls", "expected a list");
  for (const json& each : *list) {
    const json* function =
        each.is_object() && each.contains("function") ? &each["function"] : nullptr;
    if (function == nullptr || !function->is_object()) {
      throw ApiError::invalid(where + ".tool_calls", "expected objects with a function");
    }
    Fields of_call(each), of_function(*function);
    calls.push_back({of_call.string("id").value_or(""), of_function.string("name").value_or(""),
                     of_function.string("arguments").value_or("{}")});
  }
  return calls;
}

}  // namespace weft::serve
