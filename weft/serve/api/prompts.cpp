#include "weft/serve/api/prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

using nlohmann::json;

bool is_token_list(const json& value) {
  return value.is_array() && !value.empty() &&
         std::ranges::all_of(value, [](const json& each) { return each.is_number_integer(); });
}

PromptInput read_input(const json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  if (is_token_list(value)) return value.get<std::vector<int64_t>>();
  throw ApiError::invalid(name, "expected a string, token ids, or a list of either");
}

// `got` as the message has it: tokens, or bytes where these are too many already.
[[noreturn]] void refuse_length(const std::string& got, size_t num_tokens, int64_t context) {
  throw ApiError(400, "exceed_context_size_error",
                 core::join("a prompt of ", got, ", expected at most ", context, " tokens"), "",
                 "context_length_exceeded",
                 {{"n_prompt_tokens", static_cast<int64_t>(num_tokens)}, {"n_ctx", context}});
}

}  // namespace

std::vector<PromptInput> read_inputs(Fields& fields, const std::string& name, size_t most) {
  const json* const value = fields.get(name);
  if (value == nullptr) throw ApiError::invalid(name, "missing, expected a text");
  if (!value->is_array() || is_token_list(*value)) return {read_input(*value, name)};
  if (value->empty() || value->size() > most) {
    throw ApiError::invalid(
        name, core::join("a list of ", value->size(), " prompts, expected 1 to ", most));
  }
  std::vector<PromptInput> inputs;
  for (const json& each : *value) inputs.push_back(read_input(each, name));
  return inputs;
}

Prompts::Prompts(const ServedModel& model) : model_(model) {
  for (size_t id = 0; id < model_.tokenizer.vocab_size(); ++id) {
    const auto bytes = model_.tokenizer.bytes(static_cast<text::TokenId>(id));
    longest_token_ = std::max(longest_token_, bytes.size());
  }
}

int64_t Prompts::adapter_of(const std::string& name) const {
  if (name.empty() || name == kDefaultModel || name == model_.name) return 0;
  const auto found = std::ranges::find(model_.adapters, name);
  if (found != model_.adapters.end()) return found - model_.adapters.begin() + 1;
  std::string names = model_.name;
  for (const std::string& adapter : model_.adapters) names += ", " + adapter;
  throw ApiError(404, error_type_of(404),
                 core::join("model ", core::quote(name), ", expected ", names), "model",
                 "model_not_found");
}

const std::string& Prompts::model_name(int64_t adapter) const {
  return adapter == 0 ? model_.name : model_.adapters[static_cast<size_t>(adapter - 1)];
}

void Prompts::check_bytes(size_t num_bytes) const {
  const int64_t context = model_.scheduler->options().context;
  if (num_bytes > static_cast<size_t>(context) * longest_token_) {
    const size_t least = (num_bytes + longest_token_ - 1) / longest_token_;
    refuse_length(core::join(num_bytes, " bytes"), least, context);
  }
}

void Prompts::check(const Tokens& tokens, const std::string& field) const {
  const int64_t context = model_.scheduler->options().context;
  if (tokens.empty()) throw ApiError::invalid(field, "no tokens, expected at least one");
  if (std::ssize(tokens) > context) {
    refuse_length(core::join(tokens.size(), " tokens"), tokens.size(), context);
  }
  for (const int64_t token : tokens) {
    if (token >= 0 && token < model_.vocab_size) continue;
    throw ApiError::invalid(field,
                            core::join("token ", token, ", expected 0 to ", model_.vocab_size - 1));
  }
}

Prompts::Tokens Prompts::to_continue(const PromptInput& input) const {
  if (const auto* tokens = std::get_if<Tokens>(&input)) return *tokens;
  const auto& text = std::get<std::string>(input);
  check_bytes(text.size());
  const auto ids = model_.tokenizer.encode_prompt(text);
  return {ids.begin(), ids.end()};
}

Prompts::Tokens Prompts::whole(const PromptInput& input) const {
  if (const auto* tokens = std::get_if<Tokens>(&input)) return *tokens;
  const auto& text = std::get<std::string>(input);
  check_bytes(text.size());
  const auto ids = model_.tokenizer.encode_whole(text);
  return {ids.begin(), ids.end()};
}

}  // namespace weft::serve
