// Answers of a model to random schemas, drawn by the scheduler among others. The long form is
// tools/peers/check_schemas.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/grammar/random_schema.h"
#include "tests/serve/serve_steps.h"
#include "tests/support/run_ranks.h"
#include "weft/text/unicode/utf8.h"

namespace weft::serve {
namespace {

using testing::Json;

TEST(Schemas, AnswersAtTemperatureOneParseAndSatisfyThem) {
  if (!grammar::is_available()) GTEST_SKIP() << "this build has no grammars";
  weft::test::run_ranks(1, [](dist::World& world) {
    const auto [model, tokenizer] = test::byte_model(world);
    SchedulerOptions options;
    options.context = 512;
    options.max_queue = 1000;
    StepRunner runner(model, options.context, options.slots);
    grammar::Compiler compiler(tokenizer, 256);
    std::vector<Json> schemas;
    std::vector<test::Client> clients;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      schemas.push_back(testing::RandomSchema(1000 + seed).whole());
      test::Client client;
      client.request.prompt = {1, 2, 3};
      client.request.options.generate.max_tokens = 500;
      auto& sampler = client.request.options.generate.sampler;
      sampler.temperature = 1;
      sampler.seed = seed;
      sampler.grammar = compiler.compile({grammar::Form::kJsonSchema, schemas.back().dump()});
      clients.push_back(client);
    }
    const auto seen = test::serve_all(runner, tokenizer, clients, options);
    int finished = 0, judged = 0;
    for (size_t i = 0; i < schemas.size(); ++i) {
      ASSERT_TRUE(seen[i].end.has_value()) << schemas[i];
      if (*seen[i].end != SequenceEnd::kStop) continue;
      ++finished;
      // Bytes that are no character count as one to the grammar, and become several.
      if (seen[i].text.find("\xEF\xBF\xBD") != std::string::npos) continue;
      ++judged;
      const Json value = Json::parse(text::to_valid_utf8(seen[i].text), nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schemas[i] << "\n" << seen[i].text;
      EXPECT_EQ(testing::complaint(value, schemas[i], schemas[i]), "") << schemas[i];
    }
    EXPECT_GT(finished, 40);
    EXPECT_GT(judged, 30);
  });
}

}  // namespace
}  // namespace weft::serve
