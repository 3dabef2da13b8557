#include "weft/serve/api/replies.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

using nlohmann::json;

json base_json(const ReplyHead& head, const char* chat_object) {
  json reply = {{"id", head.id},
                {"object", head.is_chat ? chat_object : "text_completion"},
                {"created", head.created},
                {"model", head.model},
                {"choices", json::array()}};
  if (!head.fingerprint.empty()) reply["system_fingerprint"] = head.fingerprint;
  return reply;
}

// Of UTF-8: bytes that begin one.
size_t num_characters(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

json chat_logprobs(const Choice& choice, const text::Tokenizer& tokenizer) {
  json content = json::array();
  for (const generate::DrawnToken& token : choice.tokens) {
    content.push_back(generate::to_json(token, tokenizer));
  }
  return {{"content", std::move(content)}};
}

// `offset`: of the text's characters before these tokens; becomes that after them.
json completion_logprobs(const Choice& choice, const text::Tokenizer& tokenizer, size_t& offset) {
  json tokens = json::array(), logprobs = json::array(), tops = json::array();
  json offsets = json::array();
  for (const generate::DrawnToken& token : choice.tokens) {
    const std::string text = generate::text_of(token.drawn, tokenizer);
    offsets.push_back(offset);
    offset += num_characters(text);
    tokens.push_back(text);
    logprobs.push_back(token.drawn.logprob);
    json top = json::object();
    for (const generate::TokenLogprob& likely : token.likeliest) {
      top[generate::text_of(likely, tokenizer)] = likely.logprob;
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", tokens},
          {"token_logprobs", logprobs},
          {"top_logprobs", tops},
          {"text_offset", offsets}};
}

json calls_json(const Choice& choice, bool has_index) {
  json calls = json::array();
  size_t next = choice.first_call;
  for (const text::ToolCall& call : choice.calls) {
    json one = {{"function", {{"arguments", call.arguments}}}};
    if (!call.name.empty()) {
      one["function"]["name"] = call.name;
      one.update({{"id", call.id}, {"type", "function"}});
      ++next;
    }
    if (has_index) one["index"] = next - 1;
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

class CompletionForm : public ReplyForm {
 public:
  CompletionForm(ReplyHead head, bool includes_usage, const text::Tokenizer& tokenizer)
      : head_(std::move(head)), includes_usage_(includes_usage), tokenizer_(tokenizer) {}

  const std::string& id() const override { return head_.id; }

  std::string begin_stream(const std::vector<std::string>& first_texts) override {
    std::string events;
    for (size_t i = 0; i < first_texts.size(); ++i) {
      if (!head_.is_chat && first_texts[i].empty()) continue;
      Choice first;
      first.text = first_texts[i];
      events += event_text(chunk(i, first, true));
    }
    return events;
  }

  std::string stream_news(size_t index, const Choice& news) override {
    return event_text(chunk(index, news, false));
  }

  std::string end_stream(const std::vector<Choice>& /*choices*/, const Usage& usage,
                         const std::string& error) override {
    std::string events;
    if (!error.empty()) events += event_text(ApiError(500, error_type_of(500), error).json());
    if (includes_usage_) events += event_text(usage_chunk(usage));
    return events + "data: [DONE]\n\n";
  }

  std::string whole(const std::vector<Choice>& choices, const Usage& usage) override {
    json reply = base_json(head_, "chat.completion");
    for (size_t i = 0; i < choices.size(); ++i) {
      json choice = choice_json(i, choices[i]);
      if (head_.is_chat) {
        choice["message"] = message_json(choices[i]);
      } else {
        choice["text"] = choices[i].text;
      }
      reply["choices"].push_back(std::move(choice));
    }
    reply["usage"] = usage_json(usage);
    return core::dump_json(reply);
  }

 private:
  static std::string event_text(const json& event) {
    return "data: " + core::dump_json(event) + "\n\n";
  }

  // chat.completion.chunk or text_completion of what is new in one choice. `is_first`: it says the
  // role, too.
  json chunk(size_t index, const Choice& news, bool is_first) {
    json reply = base_json(head_, "chat.completion.chunk");
    json choice = choice_json(index, news);
    if (head_.is_chat) {
      choice["delta"] = delta_json(news, is_first);
    } else {
      choice["text"] = news.text;
    }
    reply["choices"].push_back(std::move(choice));
    return reply;
  }

  json choice_json(size_t index, const Choice& choice) {
    json logprobs;
    if (choice.tells_logprobs) {
      logprobs = head_.is_chat ? chat_logprobs(choice, tokenizer_)
                               : completion_logprobs(choice, tokenizer_, offsets_[index]);
    }
    return {{"index", index},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", finish_reason_json(choice)}};
  }

  // Without choices.
  json usage_chunk(const Usage& usage) const {
    json reply = base_json(head_, "chat.completion.chunk");
    reply["usage"] = usage_json(usage);
    return reply;
  }

  ReplyHead head_;
  bool includes_usage_;
  const text::Tokenizer& tokenizer_;
  /// Of each choice: characters of the tokens that were told.
  std::map<size_t, size_t> offsets_;
};

}  // namespace

ReplyHead new_reply_head(const std::string& prefix, bool is_chat, const std::string& model) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {is_chat, core::join(prefix, std::hex, random()),
          std::chrono::duration_cast<std::chrono::seconds>(now).count(), model};
}

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

std::unique_ptr<ReplyForm> completion_form(ReplyHead head, bool includes_usage,
                                           const text::Tokenizer& tokenizer) {
  return std::make_unique<CompletionForm>(std::move(head), includes_usage, tokenizer);
}

}  // namespace weft::serve
