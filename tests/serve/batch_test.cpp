#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/core/error.h"
#include "weft/serve/batch/batch_file.h"

namespace weft::serve {
namespace {

using nlohmann::json;
using testing::TempDir;

std::string whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BatchFile, TakesPromptsBodiesAndOpenAisLines) {
  const std::string text =
      "\"Once\"\n\n"
      "{\"messages\": [], \"max_tokens\": 3, \"seed\": 4}\n"
      "{\"custom_id\": \"c\", \"method\": \"POST\", \"url\": \"/v1/embeddings\", "
      "\"body\": {\"input\": \"a\"}}";
  const auto requests = read_batch(text, "file", {7, 0.5, 9});
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].id, "request-1");
  EXPECT_EQ(requests[0].http.path, "/v1/completions");
  EXPECT_EQ(json::parse(requests[0].http.body),
            json({{"prompt", "Once"}, {"max_tokens", 7}, {"temperature", 0.5}, {"seed", 9}}));
  EXPECT_EQ(requests[1].id, "request-3");
  EXPECT_EQ(requests[1].http.path, "/v1/chat/completions");
  EXPECT_EQ(
      json::parse(requests[1].http.body),
      json({{"messages", json::array()}, {"max_tokens", 3}, {"temperature", 0.5}, {"seed", 4}}));
  EXPECT_EQ(requests[2].id, "c");
  EXPECT_EQ(requests[2].http.path, "/v1/embeddings");
  EXPECT_EQ(json::parse(requests[2].http.body), json({{"input", "a"}}));
}

// In a schema it is the order in which members are answered.
TEST(BatchFile, KeepsTheOrderOfABodysMembers) {
  const std::string format = R"("response_format": {"b": 1, "a": {"d": 2, "c": "}"}})";
  const std::string chat = R"({"messages": [], )" + format + R"(, "seed": 4, "temperature": 1 })";
  const std::string whole =
      R"({"custom_id": "x", "method": "POST", "url": "/v1/chat/completions", "body": )" + chat +
      "}";
  const auto requests = read_batch(chat + "\r\n" + whole, "file", {});
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].http.body, R"({"messages": [], )" + format +
                                       R"(, "seed": 4, "temperature": 1 ,"max_tokens":256})");
  EXPECT_EQ(requests[1].http.body, chat);
}

TEST(BatchFile, NamesTheLineThatIsNoRequest) {
  const std::string head = R"({"custom_id": "a", "method": )";
  const std::string whole = head + R"("POST", "url": "/v1/completions", "body": {}})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "file: no request, expected one in each line"},
      {"3",
       "file: line 1: no request, expected a prompt, or an object with prompt, messages, or "
       "custom_id, method, url and body"},
      {"\"a\"\n{\"prompt\": \"a\", \"stream\": true}",
       "file: line 2: stream: true, expected answers as a whole; leave it out"},
      {head + R"("GET", "url": "/health", "body": {}})",
       "file: line 1: method 'GET', expected \"POST\""},
      {head + R"("POST", "url": "/v1/completions", "body": 3})",
       "file: line 1: body: expected an object"},
      {R"({"method": "POST", "body": {}})", "file: line 1: missing key \"custom_id\""},
      {whole + "\n" + whole, "file: line 2: custom_id 'a', expected one that no other line has"}};
  for (const auto& [text, message] : cases) {
    try {
      read_batch(text, "file", {});
      ADD_FAILURE() << text;
    } catch (const core::FormatError& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
}

TEST(BatchFile, GoesOnAfterTheAnswersThatWereWritten) {
  const std::string right = batch_line("a", 1, {200, "application/json", "{\"x\": 1}"});
  const std::string refused = batch_line("b", 2, {400, "application/json", "{}"});
  const auto answered = read_answered(right + refused + right.substr(0, 9), "file");
  EXPECT_EQ(answered.ids, std::vector<std::string>{"a"});
  EXPECT_EQ(answered.lines, right);
  EXPECT_EQ(json::parse(right)["response"]["body"], json({{"x", 1}}));
  EXPECT_THROW(read_answered("{\"other\": 1}\n", "file"), core::FormatError);
  EXPECT_EQ(read_answered(right + "{\"cust", "file").lines, right);
  // Of something else that has no line break, too.
  for (const std::string& other : {std::string("my notes"), right + "{\"id\": 1}"}) {
    try {
      read_answered(other, "file");
      ADD_FAILURE() << other;
    } catch (const core::FormatError& error) {
      EXPECT_STREQ(error.what(),
                   "file: its last line is no answer of a batch; choose another file");
    }
  }
}

// The text of each answer, by the request's id, in the order of the lines.
std::vector<std::pair<std::string, std::string>> texts_of(const std::string& lines) {
  std::vector<std::pair<std::string, std::string>> texts;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const json answer = json::parse(line);
    const json& body = answer["response"]["body"];
    texts.emplace_back(answer["custom_id"], body.contains("choices")
                                                ? body["choices"][0].value("text", "?")
                                                : body["error"].value("message", "?"));
  }
  return texts;
}

TEST(Batch, AnswersInOrderWhatEachRequestGetsAloneAndGoesOnAfterASignal) {
  const TempDir dir;
  const std::string out = dir.path() + "/answers.jsonl";
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    const json line = {{"prompt", core::join("Number ", i % 3)},
                       {"max_tokens", i % 3 == 0 ? 40 : 4}};
    lines += line.dump() + "\n";
  }
  const std::string requests = dir.write("requests.jsonl", lines + "{\"prompt\": []}\n");
  const std::vector<std::string> args = {"batch", "-i", requests,     "-o", out,
                                         "--tp",  "2",  "--parallel", "4"};
  // Killed as soon as it has written an answer.
  weft::test::BackgroundCommand first(cli::weft_command(args), cli::with_model());
  for (int i = 0; i < 600 && whole_file(out).find('\n') == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  first.signal(SIGINT);
  const weft::test::CommandResult ended = first.finish();
  EXPECT_TRUE(ended.status == 130 || ended.status == 0) << ended.status << ended.err;
  const std::string written = whole_file(out);
  ASSERT_FALSE(written.empty()) << ended.err;
  const auto rest = cli::weft(cli::joined(args, {"--resume"}));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.err, "weft batch: 12 of 13 requests answered, 1 refused\n");
  const std::string all = whole_file(out);
  EXPECT_TRUE(all.starts_with(written.substr(0, written.find('\n') + 1)));
  const auto texts = texts_of(all);
  ASSERT_EQ(texts.size(), 13U) << all;
  const std::string alone =
      cli::weft({"batch", "-i", dir.write("one", "{\"prompt\": \"Number 0\", \"max_tokens\": 40}"),
                 "--tp", "2"})
          .out;
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(texts[i].first, core::join("request-", i + 1));
    EXPECT_EQ(texts[i].second, texts[i % 3].second) << i;
  }
  EXPECT_EQ(texts[0].second, texts_of(alone).at(0).second);
  EXPECT_EQ(texts[12].second, "prompt: a list of 0 prompts, expected 1 to 64");
  const auto again = cli::weft(args);
  EXPECT_EQ(again.status, 2);
  EXPECT_NE(again.err.find("answers.jsonl"), std::string::npos) << again.err;
}

// However many are asked at once, none is refused because others wait.
TEST(Batch, RefusesNoneForItsOwnOthers) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += core::join("{\"prompt\": [", i, "], \"max_tokens\": 1}\n");
  const auto result =
      cli::weft({"batch", "-i", dir.write("many", lines), "--parallel", "64", "-c", "8"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "weft batch: 200 of 200 requests answered, 0 refused\n");
}

// Past the end of texts there is only the context that ends an answer.
TEST(Batch, AnswersUntilTheContextIsFullWhereThereIsNoLimit) {
  const TempDir dir;
  const std::string requests = dir.write("one", "{\"prompt\": [1, 2, 3], \"ignore_eos\": true}\n");
  const auto result = cli::weft({"batch", "-i", requests, "-n", "-1", "-c", "40"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json body = json::parse(result.out)["response"]["body"];
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length") << body;
  // Those that it keeps, and one that was drawn last.
  EXPECT_EQ(body["usage"]["total_tokens"], 41) << body;
  EXPECT_EQ(cli::weft({"batch", "-i", requests, "-n", "0"}).err,
            "weft: ConfigError: --max-tokens: 0, expected 1 or more, or -1\n");
}

TEST(Batch, RefusesRequestsThatAreNone) {
  const TempDir dir;
  const std::string requests = dir.write("requests", "\"a\"\n{}\n");
  const auto result = cli::weft({"batch", "-i", requests, "--tp", "2"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "weft: FormatError: " + requests +
                            ": line 2: no request, expected a prompt, or an object with prompt, "
                            "messages, or custom_id, method, url and body\n");
  // What is to be replaced stays until there is a model that answers.
  const std::string out = dir.write("out", "old\n");
  const std::string one = dir.write("one", "\"a\"\n");
  const auto missing = cli::weft({"batch", dir.at("none"), "-i", one, "-o", out, "--force"});
  EXPECT_NE(missing.status, 0);
  EXPECT_EQ(cli::weft({"batch", "-i", one, "-o", out, "--force", "--prefix-cache-mb", "1"}).status,
            2);
  EXPECT_EQ(whole_file(out), "old\n");
  EXPECT_EQ(cli::weft({"batch", "-i", one, "-o", out, "--resume"}).status, 3);
  EXPECT_EQ(whole_file(out), "old\n");
  EXPECT_EQ(cli::weft({"batch", "-i", requests, "--resume"}).err,
            "weft: ConfigError: --resume: without --out, expected the file to go on with\n");
}

}  // namespace
}  // namespace weft::serve
