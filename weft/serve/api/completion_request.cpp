#include "weft/serve/api/completion_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/api/api_error.h"
#include "weft/serve/api/fields.h"
#include "weft/serve/api/tool_fields.h"
#include "weft/serve/chat/member_text.h"
#include "weft/serve/engine/sequence.h"

namespace weft::serve {
namespace {

using nlohmann::json;

constexpr size_t kMostMessages = 4096;
constexpr size_t kMostPrompts = 64;
constexpr size_t kMostStops = 16;
constexpr size_t kMostStopBytes = 256;
constexpr int64_t kMostChoices = 8;
constexpr int64_t kMostTokens = INT32_MAX;
constexpr size_t kMostBiases = 4096;
constexpr size_t kMostOptions = 1024;
constexpr const char* kEffort = "reasoning_effort";

// What clients send that changes no answer here.
constexpr std::array kWithoutEffect = {
    "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"};
// What would change an answer in a way that this server doesn't know, but for these values.
const std::vector<std::pair<const char*, json>>& unsupported() {
  static const std::vector<std::pair<const char*, json>> table = {
      {"add_generation_prompt", true}, {"continue_final_message", false},
      {"functions", nullptr},          {"guided_choice", nullptr},
      {"guided_grammar", nullptr},     {"guided_json", nullptr},
      {"guided_regex", nullptr},       {"min_tokens", 0},
      {"modalities", {"text"}},        {"n_predict", -1},
      {"stop_token_ids", nullptr},
  };
  return table;
}

void read_biases(Fields& fields, generate::SamplerOptions& sampler) {
  const json* const biases = fields.get("logit_bias");
  if (biases == nullptr) return;
  const std::string expected = "expected an object of token ids with numbers from -100 to 100";
  if (!biases->is_object() || biases->size() > kMostBiases) {
    throw ApiError::invalid("logit_bias",
                            core::join(expected, ", at most ", kMostBiases, " of them"));
  }
  for (const auto& [name, value] : biases->items()) {
    generate::TokenBias bias;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), bias.token);
    const bool is_id = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
    if (value.is_number()) bias.bias = value.get<double>();
    if (!is_id || bias.token < 0 || !value.is_number() || std::abs(bias.bias) > 100) {
      throw ApiError::invalid("logit_bias",
                              core::join("member ", core::quote(name), ", ", expected));
    }
    sampler.logit_bias.push_back(bias);
  }
}

void read_penalties(Fields& fields, generate::SamplerOptions& sampler) {
  sampler.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  sampler.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  // The names of vLLM and of llama-server.
  for (const char* name : {"repetition_penalty", "repeat_penalty"}) {
    if (const auto penalty = fields.number(name, 0.01, 100)) sampler.repeat_penalty = *penalty;
  }
  sampler.repeat_last_n = fields.integer("repeat_last_n", -1, kMostTokens).value_or(-1);
  read_biases(fields, sampler);
}

void read_sampler(Fields& fields, CompletionRequest& request) {
  generate::SamplerOptions& sampler = request.options.generate.sampler;
  sampler.temperature = fields.number("temperature", 0, 2).value_or(1);
  sampler.top_p = fields.number("top_p", 0, 1).value_or(1);
  sampler.min_p = fields.number("min_p", 0, 1).value_or(0);
  sampler.top_k = std::max<int64_t>(0, fields.integer("top_k", -1, kMostTokens).value_or(0));
  read_penalties(fields, sampler);
  request.seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  // vLLM's and llama-server's way to say that there is none.
  if (request.seed == -1) request.seed.reset();
}

void read_stops(Fields& fields, CompletionRequest& request) {
  request.options.stops = fields.strings("stop", kMostStops);
  for (const std::string& stop : request.options.stops) {
    if (!stop.empty() && stop.size() <= kMostStopBytes) continue;
    throw ApiError::invalid(
        "stop", core::join("a text of ", stop.size(), " bytes, expected 1 to ", kMostStopBytes));
  }
  request.options.ignores_end = fields.boolean("ignore_eos").value_or(false);
}

void read_stream(Fields& fields, CompletionRequest& request) {
  request.is_stream = fields.boolean("stream").value_or(false);
  const json* const options = fields.get("stream_options");
  if (options == nullptr) return;
  if (!request.is_stream) throw ApiError::invalid("stream_options", "needs stream: true");
  Fields of_stream(*options, "stream_options");
  request.includes_usage = of_stream.boolean("include_usage").value_or(false);
  of_stream.boolean("include_obfuscation");
}

// A member's text in the order in which the client wrote it.
std::string ordered(const std::string& text, const std::vector<std::string>& path,
                    const json& value) {
  return member_text(text, path).value_or(core::dump_json(value));
}

// What OpenAI's API calls it; a json_object with a schema is llama-server's.
std::optional<grammar::Source> read_response_format(Fields& fields, const std::string& text) {
  const json* const format = fields.get("response_format");
  if (format == nullptr) return std::nullopt;
  Fields of_format(*format, "response_format");
  const std::string type = of_format.string("type").value_or("");
  if (type == "text") return std::nullopt;
  if (type == "json_object") {
    const json* const schema = of_format.get("schema");
    if (schema == nullptr) return grammar::Source{grammar::Form::kJsonObject, ""};
    return grammar::Source{grammar::Form::kJsonSchema,
                           ordered(text, {"response_format", "schema"}, *schema)};
  }
  if (type != "json_schema") {
    throw ApiError::invalid(
        "response_format.type",
        core::join("got ", core::quote(type), ", expected text, json_object or json_schema"));
  }
  const json* const named = of_format.get("json_schema");
  const bool has_schema = named != nullptr && named->is_object() && named->contains("schema");
  if (!has_schema) {
    throw ApiError::invalid("response_format.json_schema", "expected an object with a schema");
  }
  return grammar::Source{
      grammar::Form::kJsonSchema,
      ordered(text, {"response_format", "json_schema", "schema"}, named->at("schema"))};
}

// In GBNF, whose texts are quoted as those of JSON.
std::string one_of(const std::vector<std::string>& texts) {
  if (texts.empty()) {
    throw ApiError::invalid("structured_outputs.choice", "no text, expected at least one");
  }
  std::string rule = "root ::= ";
  for (const std::string& text : texts) {
    rule += (&text == texts.data() ? "" : " | ") + core::dump_json(text);
  }
  return rule;
}

// What vLLM and llama-server call it.
std::vector<grammar::Source> read_other_grammars(Fields& fields, const std::string& text) {
  std::vector<grammar::Source> sources;
  if (const auto ebnf = fields.string("grammar")) {
    sources.push_back({grammar::Form::kEbnf, *ebnf});
  }
  if (const json* const schema = fields.get("json_schema")) {
    sources.push_back({grammar::Form::kJsonSchema, ordered(text, {"json_schema"}, *schema)});
  }
  const json* const outputs = fields.get("structured_outputs");
  if (outputs == nullptr) return sources;
  Fields of_outputs(*outputs, "structured_outputs");
  if (const json* const schema = of_outputs.get("json")) {
    const bool is_text = schema->is_string();
    sources.push_back({grammar::Form::kJsonSchema,
                       is_text ? schema->get<std::string>()
                               : ordered(text, {"structured_outputs", "json"}, *schema)});
  }
  if (const auto regex = of_outputs.string("regex")) {
    sources.push_back({grammar::Form::kRegex, *regex});
  }
  if (const auto ebnf = of_outputs.string("grammar")) {
    sources.push_back({grammar::Form::kEbnf, *ebnf});
  }
  if (of_outputs.get("choice") != nullptr) {
    sources.push_back({grammar::Form::kEbnf, one_of(of_outputs.strings("choice", kMostOptions))});
  }
  const auto unknown = of_outputs.unknown();
  if (!unknown.empty()) {
    throw ApiError::invalid("structured_outputs." + unknown.front(),
                            "unknown, expected json, regex, grammar or choice");
  }
  return sources;
}

void read_grammar(Fields& fields, const std::string& text, CompletionRequest& request) {
  std::vector<grammar::Source> sources = read_other_grammars(fields, text);
  if (auto format = read_response_format(fields, text)) sources.push_back(std::move(*format));
  if (sources.size() > 1) {
    throw ApiError::invalid("response_format",
                            "beside another grammar, expected one; leave the other out");
  }
  if (sources.empty()) return;
  if (request.options.ignores_end) {
    throw ApiError::invalid("ignore_eos", "with a grammar, whose texts end; leave one of them out");
  }
  request.options.grammar = std::move(sources.front());
}

// What both kinds of requests have.
void read_common(Fields& fields, const std::string& text, CompletionRequest& request) {
  request.model = fields.string("model").value_or("");
  request.num_choices = fields.integer("n", 1, kMostChoices).value_or(1);
  request.max_tokens = fields.integer("max_tokens", 1, kMostTokens);
  if (const auto most = fields.integer("max_completion_tokens", 1, kMostTokens)) {
    request.max_tokens = most;
  }
  read_sampler(fields, request);
  read_stops(fields, request);
  read_stream(fields, request);
  read_grammar(fields, text, request);
  for (const auto& [name, harmless] : unsupported()) fields.refuse_unless(name, harmless);
  for (const char* name : kWithoutEffect) fields.get(name);
}

std::string read_content(const json& content, const std::string& where) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw ApiError::invalid(where, "expected a string or a list of parts");
  std::string text;
  for (const json& part : content) {
    Fields fields(part, where);
    const std::string type = fields.string("type").value_or("");
    if (type != "text") {
      throw ApiError::invalid(where, core::join("a part of type ", core::quote(type),
                                                ", expected text; this model reads nothing else"));
    }
    text += fields.string("text").value_or("");
  }
  return text;
}

text::Message read_message(const json& message, size_t index) {
  const std::string where = core::join("messages[", index, "]");
  Fields fields(message, where);
  std::string role = fields.string("role").value_or("");
  if (role == "developer") role = "system";
  constexpr std::array kRoles = {"system", "user", "assistant", "tool"};
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    throw ApiError::invalid(
        where + ".role",
        core::join("got ", core::quote(role), ", expected system, user, assistant or tool"));
  }
  const json* const content = fields.get("content");
  if (content == nullptr && role != "assistant") {
    throw ApiError::invalid(where + ".content", "missing, expected a text");
  }
  text::Message read{role, content == nullptr ? "" : read_content(*content, where + ".content")};
  if (role == "assistant") {
    read.tool_calls = read_calls(fields, where);
    read.reasoning = fields.string("reasoning_content").value_or("");
  }
  if (role == "tool") read.tool_call_id = fields.string("tool_call_id").value_or("");
  read.name = fields.string("name").value_or("");
  return read;
}

// chat_template_kwargs, and reasoning_effort, which is a name of templates, too.
void read_template_names(Fields& fields, const std::string& text, CompletionRequest& request) {
  const json* const names = fields.get("chat_template_kwargs");
  if (names != nullptr && !names->is_object()) {
    throw ApiError::invalid("chat_template_kwargs", "expected an object");
  }
  if (names != nullptr) request.template_names = ordered(text, {"chat_template_kwargs"}, *names);
  const auto effort = fields.string(kEffort);
  request.has_effort = effort.has_value();
  if (!effort || (names != nullptr && names->contains(kEffort))) return;
  const std::string others =
      request.template_names.empty()
          ? "}"
          : request.template_names.substr(request.template_names.find('{') + 1);
  const bool is_alone = names == nullptr || names->empty();
  request.template_names =
      core::join("{\"", kEffort, "\": ", core::dump_json(*effort), is_alone ? "" : ", ", others);
}

}  // namespace

CompletionRequest read_chat_request(const json& body, const std::string& text) {
  CompletionRequest request;
  request.is_chat = true;
  Fields fields(body);
  read_common(fields, text, request);
  const json* const messages = fields.get("messages");
  const bool is_list = messages != nullptr && messages->is_array();
  if (!is_list || messages->empty() || messages->size() > kMostMessages) {
    throw ApiError::invalid("messages",
                            core::join("expected a list of 1 to ", kMostMessages, " messages"));
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    request.messages.push_back(read_message((*messages)[i], i));
  }
  read_tools(fields, text, request);
  read_template_names(fields, text, request);
  const auto top = fields.integer("top_logprobs", 0, generate::kMostLogprobs);
  const bool tells_logprobs = fields.boolean("logprobs").value_or(false);
  if (top && !tells_logprobs) throw ApiError::invalid("top_logprobs", "needs logprobs: true");
  if (tells_logprobs) request.options.generate.num_logprobs = top.value_or(0);
  request.unknown = fields.unknown();
  return request;
}

CompletionRequest read_completion_request(const json& body, const std::string& text) {
  CompletionRequest request;
  Fields fields(body);
  read_common(fields, text, request);
  request.prompts = read_inputs(fields, "prompt", kMostPrompts);
  request.options.generate.num_logprobs =
      fields.integer("logprobs", 0, generate::kMostLogprobs).value_or(-1);
  request.echoes = fields.boolean("echo").value_or(false);
  if (request.echoes && request.options.generate.num_logprobs >= 0) {
    throw ApiError::invalid("echo",
                            "with logprobs, which are told of new tokens alone; leave one "
                            "of them out");
  }
  fields.refuse_unless("suffix", "");
  fields.refuse_unless("best_of", request.num_choices);
  request.unknown = fields.unknown();
  return request;
}

}  // namespace weft::serve
