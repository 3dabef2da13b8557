#include "weft/serve/load/load.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/serve/http_clients.h"
#include "weft/serve/load/event_lines.h"
#include "weft/serve/load/load_report.h"

namespace weft::serve {
namespace {

using nlohmann::json;
using testing::error_text;

TEST(EventLines, FindsDataInPiecesOfAnySize) {
  const std::string bytes =
      ": ping\n\ndata: {\"a\": 1}\r\n\r\ndata:b\n\nevent: x\ndata: [DONE]\n\ndata: cut";
  for (size_t size = 1; size < bytes.size(); ++size) {
    EventLines lines;
    std::vector<std::string> data;
    for (size_t begin = 0; begin < bytes.size(); begin += size) {
      lines.add(std::string_view(bytes).substr(begin, size),
                [&](std::string_view text) { data.emplace_back(text); });
    }
    EXPECT_EQ(data, (std::vector<std::string>{"{\"a\": 1}", "b", "[DONE]"})) << size;
  }
  EXPECT_EQ(error_text([] {
              EventLines lines;
              for (int i = 0; i < 100; ++i) lines.add(std::string(100'000, 'x'), nullptr);
            }),
            "IoError: an event of more than 4194304 bytes");
}

TEST(LoadReport, CountsWhatKeepsTheLimits) {
  LoadResult result;
  // 100 ms, then 10 ms apart; 300 ms, then 50 ms apart.
  result.answers = {{{0.1, 0.11, 0.12}, 3, 6}, {{0.3, 0.35}, 4, 7}, {{0.05}, 1, 9}};
  result.seconds = 2;
  const json all = load_report(result, {});
  EXPECT_EQ(all["tokens"], 8);
  EXPECT_EQ(all["prompt_tokens"], 22);
  EXPECT_EQ(all["tokens_per_s"], 4.0);
  EXPECT_EQ(all["answers_per_s"], 1.5);
  EXPECT_FALSE(all.contains("goodput"));
  EXPECT_DOUBLE_EQ(all["first_token_ms"]["p50"].get<double>(), 100);
  EXPECT_NEAR(all["between_tokens_ms"]["p99"].get<double>(), 50, 1e-9);
  EXPECT_EQ(load_report(result, {200, {}})["goodput"]["answers"], 2);
  EXPECT_EQ(load_report(result, {{}, 20})["goodput"]["answers"], 2);
  EXPECT_EQ(load_report(result, {60, 20})["goodput"]["answers"], 1);
  EXPECT_EQ(load_text("clients 1", load_report(result, {60, 20})),
            "clients 1: 3 answers in 2.0 s: 1.50 answers/s, 4.0 tokens/s\n"
            "  tokens             8 in answers, 22 in prompts\n"
            "  first token ms     p50     100.0  p90     300.0  p99     300.0\n"
            "  between tokens ms  p50      10.0  p90      50.0  p99      50.0\n"
            "  goodput            0.50 answers/s: 1 with at most 60 ms to the first token and at "
            "most 20 ms between tokens\n");
}

TEST(LoadReport, HasNoTimesWhereNothingCame) {
  LoadResult result;
  result.answers = {{{0.1}, 2}};
  result.seconds = 4;
  EXPECT_EQ(load_text("clients 1", load_report(result, {})),
            "clients 1: 1 answer in 4.0 s: 0.25 answers/s, 0.5 tokens/s\n"
            "  tokens             2 in answers\n"
            "  first token ms     p50     100.0  p90     100.0  p99     100.0\n");
  result.answers.clear();
  const json report = load_report(result, {60, 20});
  EXPECT_TRUE(report["first_token_ms"].is_null());
  EXPECT_TRUE(report["between_tokens_ms"].is_null());
  EXPECT_EQ(report["goodput"]["answers"], 0);
}

// A server that lists one model and answers completions as it is told.
class FakeServer {
 public:
  using Answer = std::function<void(int number, const std::shared_ptr<HttpReply>& reply)>;

  explicit FakeServer(Answer answer)
      : server_(test::small_options(),
                [this, answer = std::move(answer)](const HttpRequest& request,
                                                   const std::shared_ptr<HttpReply>& reply) {
                  if (request.path == "/v1/models") {
                    reply->send({200, "application/json", R"({"data": [{"id": "m"}]})", {}});
                  } else {
                    bodies.push_back(request.body);
                    answer(static_cast<int>(bodies.size()), reply);
                  }
                }) {}
  LoadOptions options() const {
    LoadOptions options;
    options.url = core::join("http://127.0.0.1:", server_.port());
    options.num_requests = 3;
    options.prompt_words = 5;
    options.shared_words = 2;
    options.new_tokens = 4;
    return options;
  }
  LoadResult run() const {
    return run_load(options(), [] { return false; });
  }
  std::string refusal() const {
    const std::string text = error_text([this] { run(); });
    const size_t begin = text.find(options().url);
    return begin == std::string::npos ? text : text.substr(begin + options().url.size());
  }

  std::vector<std::string> bodies;

 private:
  HttpServer server_;
};

void stream(const std::shared_ptr<HttpReply>& reply, const std::vector<std::string>& events) {
  reply->begin_stream({200, "text/event-stream", "", {}});
  for (const std::string& event : events) reply->write("data: " + event + "\n\n");
  reply->end();
}

TEST(Load, CountsTokensAsTheServerDoesAndAsksWithDifferentPrompts) {
  const FakeServer server([](int, const auto& reply) {
    stream(reply,
           {R"({"choices": [{"text": "ab"}]})", R"({"choices": [{"text": ""}]})",
            R"({"choices": [{"text": "c"}]})",
            R"({"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 6}})", "[DONE]"});
  });
  const LoadResult result = server.run();
  EXPECT_EQ(result.model, "m");
  EXPECT_EQ(result.num_failed, 0U);
  ASSERT_EQ(result.answers.size(), 3U);
  EXPECT_EQ(result.answers[0].num_tokens, 4);
  EXPECT_EQ(result.answers[0].num_prompt_tokens, 6);
  EXPECT_EQ(result.answers[0].piece_seconds.size(), 2U);
  ASSERT_EQ(server.bodies.size(), 3U);
  const json first = json::parse(server.bodies[0]), second = json::parse(server.bodies[1]);
  EXPECT_EQ(first["max_tokens"], 4);
  EXPECT_EQ(first["model"], "m");
  EXPECT_NE(first["prompt"], second["prompt"]);
  const auto two_words = [](const json& body) {
    const auto prompt = body["prompt"].get<std::string>();
    return prompt.substr(0, prompt.find(' ', prompt.find(' ') + 1));
  };
  EXPECT_EQ(two_words(first), two_words(second));
}

TEST(Load, CountsFailuresBesideAnswersAndTellsTheFirst) {
  const FakeServer server([](int number, const auto& reply) {
    if (number == 2)
      return reply->send({429, "application/json", R"({"error": {"message": "busy"}})", {}});
    stream(reply, {R"({"choices": [{"text": "a"}]})"});
  });
  const LoadResult result = server.run();
  EXPECT_EQ(result.answers.size(), 2U);
  EXPECT_EQ(result.num_failed, 1U);
  EXPECT_EQ(result.first_failure, "answered with status 429: busy");
  EXPECT_EQ(result.answers[0].num_tokens, 1);
}

TEST(Load, RefusesAServerThatAnswersNothing) {
  const auto refusal = [](const FakeServer::Answer& answer) {
    return FakeServer(answer).refusal();
  };
  EXPECT_EQ(refusal([](int, const auto& reply) {
              reply->send({401, "application/json", R"({"error": {"message": "no\nkey"}})", {}});
            }),
            ": answered with status 401: no\\x0akey");
  EXPECT_EQ(refusal([](int, const auto& reply) {
              reply->send({500, "text/plain", "oops", {}});
            }),
            ": answered with status 500: oops");
  EXPECT_EQ(refusal([](int, const auto& reply) {
              stream(reply, {R"({"error": {"message": "rank 1 died"}})"});
            }),
            ": the answer broke off: rank 1 died");
  EXPECT_EQ(refusal([](int, const auto& reply) { stream(reply, {"[DONE]"}); }),
            ": an answer without text");
  EXPECT_TRUE(refusal([](int, const auto& reply) {
                stream(reply, {"{"});
              }).starts_with(": an event of the answer: "));
}

TEST(Load, EndsWhenItIsStopped) {
  // Never answered.
  std::vector<std::shared_ptr<HttpReply>> kept;
  const FakeServer server([&](int, const auto& reply) { kept.push_back(reply); });
  int asked = 0;
  const LoadResult result = run_load(server.options(), [&] { return ++asked > 4; });
  EXPECT_TRUE(result.answers.empty());
  EXPECT_EQ(result.num_failed, 0U);
}

}  // namespace
}  // namespace weft::serve
