// Calls whose arguments come piece by piece, as streams tell them.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/serve/api/answer.h"
#include "weft/serve/api/replies.h"
#include "weft/serve/responses/response_form.h"

namespace weft::serve {
namespace {

using nlohmann::json;

text::Tokenizer letters() {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.tokens = {"a"};
  vocabulary.kinds = {text::TokenKind::kNormal};
  return text::Tokenizer::make(vocabulary, "test");
}

// What is new: a call that begins, one that goes on, and the next.
std::vector<Choice> news_of_calls() {
  std::vector<Choice> news(3);
  news[0].calls = {{"id1", "f", ""}};
  news[1].first_call = 1;
  news[1].calls = {{"", "", "{\"x\": "}};
  news[2].first_call = 1;
  news[2].calls = {{"", "", "1}"}, {"id2", "g", "{}"}};
  news[2].end = SequenceEnd::kStop;
  return news;
}

std::vector<json> events_of(const std::string& text) {
  std::vector<json> events;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("data: {")) events.push_back(json::parse(line.substr(6)));
  }
  return events;
}

TEST(CallEvents, OfChatsHaveDeltasByIndex) {
  const text::Tokenizer tokenizer = letters();
  const auto form = completion_form(new_reply_head("c-", true, "m"), false, tokenizer);
  std::vector<json> deltas, reasons;
  for (const Choice& news : news_of_calls()) {
    for (const json& event : events_of(form->stream_news(0, news))) {
      const json& choice = event["choices"][0];
      for (const json& call : choice["delta"]["tool_calls"]) deltas.push_back(call);
      reasons.push_back(choice["finish_reason"]);
    }
  }
  ASSERT_EQ(deltas.size(), 4U);
  EXPECT_EQ(deltas[0], json::parse(R"({"index": 0, "id": "id1", "type": "function",
                                       "function": {"name": "f", "arguments": ""}})"));
  EXPECT_EQ(deltas[1], json::parse(R"({"index": 0, "function": {"arguments": "{\"x\": "}})"));
  EXPECT_EQ(deltas[2], json::parse(R"({"index": 0, "function": {"arguments": "1}"}})"));
  EXPECT_EQ(deltas[3], json::parse(R"({"index": 1, "id": "id2", "type": "function",
                                       "function": {"name": "g", "arguments": "{}"}})"));
  EXPECT_EQ(reasons, (std::vector<json>{nullptr, nullptr, "tool_calls"}));
}

TEST(CallEvents, OfResponsesEndWithTheWholeArguments) {
  const auto form = response_form(new_reply_head("resp_", false, "m"), json::object());
  std::string text = form->begin_stream({""});
  std::vector<Choice> all(1);
  for (const Choice& news : news_of_calls()) text += form->stream_news(0, news);
  all[0].end = SequenceEnd::kStop;
  text += form->end_stream(all, {}, "");
  std::vector<std::string> told;
  for (const json& event : events_of(text)) {
    const std::string type = event["type"].get<std::string>();
    if (type.find("function_call") == type.npos) continue;
    told.push_back(type.substr(type.rfind('.') + 1) + " " +
                   event.value("delta", event.value("arguments", "")));
  }
  EXPECT_EQ(told, (std::vector<std::string>{"delta {\"x\": ", "delta 1}", "done {\"x\": 1}",
                                            "delta {}", "done {}"}));
  const json last = events_of(text).back()["response"]["output"];
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0]["arguments"], "{\"x\": 1}");
  EXPECT_EQ(last[0]["status"], "completed");
  EXPECT_EQ(last[1]["name"], "g");
}

// An item's type, status, and text or arguments.
std::string item_line(const json& item) {
  const std::string text = item.contains("arguments")
                               ? item["arguments"].get<std::string>()
                               : item["content"][0]["text"].get<std::string>();
  return core::join(item["type"].get<std::string>(), " ", item["status"].get<std::string>(), " ",
                    text);
}

std::vector<std::string> item_lines(const json& response) {
  std::vector<std::string> lines;
  for (const json& item : response["output"]) lines.push_back(item_line(item));
  return lines;
}

TEST(CallEvents, OfResponsesGoOnWithACallBeforeWords) {
  const auto form = response_form(new_reply_head("resp_", false, "m"), json::object());
  std::string text = form->begin_stream({""});
  Choice begun, further;
  begun.calls = {{"id1", "f", "{\"x\": "}};
  further.text = "So.";
  further.reasoning = "Hm.";
  further.calls = {{"", "", "1"}, {"", "", "}"}, {"id2", "g", "{"}};
  text += form->stream_news(0, begun);
  text += form->stream_news(0, further);
  std::vector<Choice> all(1);
  all[0].end = SequenceEnd::kLength;
  text += form->end_stream(all, {}, "");
  EXPECT_EQ(
      item_lines(events_of(text).back()["response"]),
      (std::vector<std::string>{"function_call completed {\"x\": 1}", "reasoning completed Hm.",
                                "message completed So.", "function_call incomplete {"}));
}

TEST(CallEvents, OfWholeResponsesSayWhichPartIsCut) {
  const auto lines = [](const std::vector<text::ToolCall>& calls, const std::string& words,
                        SequenceEnd end) {
    Choice choice;
    choice.reasoning = "Hm.";
    choice.text = words;
    choice.calls = calls;
    choice.end = end;
    const auto form = response_form(new_reply_head("resp_", false, "m"), json::object());
    return item_lines(json::parse(form->whole({choice}, {})));
  };
  using Lines = std::vector<std::string>;
  const SequenceEnd cut = SequenceEnd::kLength;
  EXPECT_EQ(lines({{"id1", "f", "{}"}, {"id2", "g", "{\"x\""}}, "So.", cut),
            (Lines{"reasoning completed Hm.", "message completed So.", "function_call completed {}",
                   "function_call incomplete {\"x\""}));
  EXPECT_EQ(lines({{"id1", "f", "{}"}}, "", cut),
            (Lines{"reasoning completed Hm.", "function_call completed {}"}));
  EXPECT_EQ(lines({}, "So.", cut), (Lines{"reasoning completed Hm.", "message incomplete So."}));
  EXPECT_EQ(lines({}, "", cut), Lines{"reasoning incomplete Hm."});
  EXPECT_EQ(lines({{"id1", "f", "{"}}, "", SequenceEnd::kStop),
            (Lines{"reasoning completed Hm.", "function_call completed {"}));
}

// What a client gets of an answer that comes as these texts.
class KeptReply : public HttpReply {
 public:
  void send(HttpAnswer answer) override { body += answer.body; }
  void begin_stream(HttpAnswer /*answer*/) override {}
  void write(std::string piece) override { body += piece; }
  void end() override {}
  void on_gone(std::function<void()> /*action*/) override {}

  std::string body;
};

TEST(CallEvents, KeepTheIdThatTheModelWrites) {
  const text::Tokenizer tokenizer = letters();
  CompletionRequest request;
  request.is_chat = true;
  Metrics metrics;
  const auto reply = std::make_shared<KeptReply>();
  Answer answer(request, completion_form(new_reply_head("c-", true, "m"), false, tokenizer), reply,
                {metrics, {.format = ToolFormat::kKimi, .parses_calls = true}});
  answer.start({""}, {}, [] { return std::vector<uint64_t>{1}; });
  const std::string argument = "<|tool_call_argument_begin|>{}<|tool_call_end|>";
  SequenceEvent event;
  event.text = "<|tool_call_begin|>functions.f:0" + argument;
  answer.take(0, event);
  event.text = "<|tool_call_begin|>functions.g:1" + argument;
  event.end = SequenceEnd::kStop;
  answer.take(0, event);
  const json calls = json::parse(reply->body)["choices"][0]["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["id"], "functions.f:0");
  EXPECT_EQ(calls[1]["id"], "functions.g:1");
}

}  // namespace
}  // namespace weft::serve
