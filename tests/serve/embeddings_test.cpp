#include "weft/serve/embeddings/embeddings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/serve/serve_steps.h"
#include "tests/support/run_ranks.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

using nlohmann::json;
using weft::test::run_ranks;

// See tools/goldens/tiny_model.py.
json goldens() {
  std::ifstream in(WEFT_SOURCE_DIR "/tests/serve/data/embeddings.json");
  return json::parse(in);
}

test::Client client_of_golden(const json& golden, Pooling pooling) {
  test::Client client;
  for (const char byte : golden.at("text").get<std::string>()) {
    client.request.prompt.push_back(static_cast<unsigned char>(byte));
  }
  client.request.pooling = pooling;
  return client;
}

void expect_golden(const test::Seen& seen, const json& wanted, int64_t num_reused) {
  EXPECT_EQ(seen.end, SequenceEnd::kStop);
  EXPECT_EQ(seen.num_reused, num_reused);
  EXPECT_EQ(seen.num_drawn, 0);
  ASSERT_EQ(seen.embedding.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(seen.embedding[i], wanted[i].get<double>(), 2e-5) << i;
  }
}

TEST(Embeddings, AreTransformersHiddenStatesWithPagesAndWithout) {
  for (const int n : {1, 2}) {
    run_ranks(n, [](dist::World& world) {
      const auto [model, tokenizer] = test::byte_model(world);
      SchedulerOptions options;
      options.context = 512;
      options.slots = 3;
      options.prefix.num_pages = 8;
      StepRunner runner(model, options.context, options.slots);
      const json texts = goldens();
      for (const Pooling pooling : {Pooling::kLast, Pooling::kMean}) {
        const char* const name = pooling == Pooling::kLast ? "last" : "mean";
        std::vector<test::Client> clients;
        for (const json& golden : texts) clients.push_back(client_of_golden(golden, pooling));
        // The longest once more, when its pages are there.
        clients.push_back(client_of_golden(texts.back(), pooling));
        clients.back().first_step = 6;
        const auto seen = test::serve_all(runner, tokenizer, clients, options);
        if (world.rank() != 0) continue;
        for (size_t i = 0; i < texts.size(); ++i) expect_golden(seen[i], texts[i].at(name), 0);
        expect_golden(seen.back(), texts.back().at(name), pooling == Pooling::kLast ? 256 : 0);
        EXPECT_EQ(seen.back().embedding, seen[texts.size() - 1].embedding);
      }
    });
  }
}

std::string embedding_refusal(const json& body) {
  try {
    read_embedding_request(body);
  } catch (const ApiError& error) {
    return error.what();
  }
  return "no error";
}

TEST(EmbeddingRequest, TakesTextsAndTokensAndRefusesTheRestByItsName) {
  using Tokens = std::vector<int64_t>;
  const EmbeddingRequest one = read_embedding_request({{"input", "a"}, {"user", "me"}});
  EXPECT_EQ(one.inputs, std::vector<PromptInput>{"a"});
  EXPECT_FALSE(one.is_base64);
  const EmbeddingRequest full = read_embedding_request(
      {{"input", {{1, 2}, {3}}}, {"model", "m"}, {"encoding_format", "base64"}, {"best", 1}});
  EXPECT_EQ(full.inputs, (std::vector<PromptInput>{Tokens{1, 2}, Tokens{3}}));
  EXPECT_TRUE(full.is_base64);
  EXPECT_EQ(full.unknown, std::vector<std::string>{"best"});
  EXPECT_EQ(embedding_refusal({{"model", "m"}}), "input: missing, expected a text");
  EXPECT_EQ(embedding_refusal({{"input", {1, "a"}}}),
            "input: expected a string, token ids, or a list of either");
  EXPECT_EQ(embedding_refusal({{"input", json::array()}}),
            "input: a list of 0 prompts, expected 1 to 2048");
  EXPECT_EQ(embedding_refusal({{"input", "a"}, {"encoding_format", "hex"}}),
            "encoding_format: got 'hex', expected float or base64");
  EXPECT_EQ(embedding_refusal({{"input", "a"}, {"dimensions", 3}}),
            "dimensions: not supported by this server; leave it out");
}

// RFC 4648, section 10.
TEST(Base64, GivesTheLettersOfItsStandard) {
  const std::vector<std::string> letters = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                            "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t size = 0; size < letters.size(); ++size) {
    EXPECT_EQ(base64_text(std::string("foobar").substr(0, size)), letters[size]);
  }
}

}  // namespace
}  // namespace weft::serve
