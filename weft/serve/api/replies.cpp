#include "weft/serve/api/replies.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace weft::serve {
namespace {

using nlohmann::json;

json base_json(const ReplyHead& head, const char* chat_object) {
  return {{"id", head.id},
          {"object", head.is_chat ? chat_object : "text_completion"},
          {"created", head.created},
          {"model", head.model},
          {"choices", json::array()}};
}

std::string text_of(const TokenLogprob& token, const text::Tokenizer& tokenizer) {
  if (token.token >= static_cast<int64_t>(tokenizer.vocab_size())) return "";
  return std::string(tokenizer.bytes(static_cast<text::TokenId>(token.token)));
}

json token_json(const TokenLogprob& token, const text::Tokenizer& tokenizer) {
  const std::string text = text_of(token, tokenizer);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  return {{"token", text},
          {"logprob", token.logprob},
          {"bytes", std::vector<unsigned>(bytes, bytes + text.size())}};
}

json chat_logprobs(const Choice& choice, const text::Tokenizer& tokenizer) {
  json content = json::array();
  for (const DrawnToken& token : choice.tokens) {
    json one = token_json(token.drawn, tokenizer);
    one["top_logprobs"] = json::array();
    for (const TokenLogprob& likely : token.likeliest) {
      one["top_logprobs"].push_back(token_json(likely, tokenizer));
    }
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

json completion_logprobs(const Choice& choice, const text::Tokenizer& tokenizer) {
  json tokens = json::array(), logprobs = json::array(), tops = json::array();
  for (const DrawnToken& token : choice.tokens) {
    tokens.push_back(text_of(token.drawn, tokenizer));
    logprobs.push_back(token.drawn.logprob);
    json top = json::object();
    for (const TokenLogprob& likely : token.likeliest) {
      top[text_of(likely, tokenizer)] = likely.logprob;
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", tops}};
}

json calls_json(const Choice& choice, bool has_index) {
  json calls = json::array();
  for (size_t i = 0; i < choice.calls.size(); ++i) {
    const text::ToolCall& call = choice.calls[i];
    json one = {{"id", call.id},
                {"type", "function"},
                {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
    if (has_index) one["index"] = choice.first_call + i;
    calls.push_back(std::move(one));
  }
  return calls;
}

json message_json(const Choice& choice) {
  json message = {{"role", "assistant"}, {"content", choice.text}};
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  message["tool_calls"] = calls_json(choice, false);
  return message;
}

json delta_json(const Choice& news, bool is_first) {
  json delta = json::object();
  if (is_first) delta["role"] = "assistant";
  if (is_first || !news.text.empty()) delta["content"] = news.text;
  if (!news.reasoning.empty()) delta["reasoning_content"] = news.reasoning;
  if (!news.calls.empty()) delta["tool_calls"] = calls_json(news, true);
  return delta;
}

json choice_json(const ReplyHead& head, size_t index, const Choice& choice,
                 const text::Tokenizer& tokenizer) {
  json logprobs;
  if (choice.tells_logprobs) {
    logprobs =
        head.is_chat ? chat_logprobs(choice, tokenizer) : completion_logprobs(choice, tokenizer);
  }
  return {{"index", index},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", finish_reason_json(choice)}};
}

}  // namespace

json finish_reason_json(const Choice& choice) {
  const bool calls = choice.first_call + choice.calls.size() > 0;
  if (choice.end == SequenceEnd::kStop) return calls ? "tool_calls" : "stop";
  if (choice.end == SequenceEnd::kLength) return "length";
  return nullptr;
}

json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.num_prompt},
          {"completion_tokens", usage.num_drawn},
          {"total_tokens", usage.num_prompt + usage.num_drawn},
          {"prompt_tokens_details", {{"cached_tokens", usage.num_reused}}}};
}

json whole_reply(const ReplyHead& head, const std::vector<Choice>& choices, const Usage& usage,
                 const text::Tokenizer& tokenizer) {
  json reply = base_json(head, "chat.completion");
  for (size_t i = 0; i < choices.size(); ++i) {
    json choice = choice_json(head, i, choices[i], tokenizer);
    if (head.is_chat) {
      choice["message"] = message_json(choices[i]);
    } else {
      choice["text"] = choices[i].text;
    }
    reply["choices"].push_back(std::move(choice));
  }
  reply["usage"] = usage_json(usage);
  return reply;
}

json reply_chunk(const ReplyHead& head, size_t index, const Choice& news, bool is_first,
                 const text::Tokenizer& tokenizer) {
  json reply = base_json(head, "chat.completion.chunk");
  json choice = choice_json(head, index, news, tokenizer);
  if (head.is_chat) {
    choice["delta"] = delta_json(news, is_first);
  } else {
    choice["text"] = news.text;
  }
  reply["choices"].push_back(std::move(choice));
  return reply;
}

json usage_chunk(const ReplyHead& head, const Usage& usage) {
  json reply = base_json(head, "chat.completion.chunk");
  reply["usage"] = usage_json(usage);
  return reply;
}

}  // namespace weft::serve
