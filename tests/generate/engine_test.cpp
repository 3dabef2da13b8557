#include "weft/generate/engine.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/models/load/load.h"

namespace weft::generate {
namespace {

using test::run_ranks;
using testing::error_text;
using Tokens = std::vector<int64_t>;

// The tokens that the reference implementation's file holds under `key`.
Tokens reference(const std::string& key) {
  const auto file = io::TensorFile::open(test::model_data("mlx/plain_f32.ref.safetensors"));
  std::istringstream list(std::get<std::string>(file->metadata().at(key)));
  Tokens tokens;
  for (std::string item; std::getline(list, item, ',');) tokens.push_back(std::stoll(item));
  return tokens;
}

Engine make_engine(const dist::World& world, int64_t context = 64) {
  return Engine(
      models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")), world.group())
          .model,
      context);
}

Verdict go_on(int64_t) { return Verdict::kContinue; }

Tokens generate(Engine& engine, const Tokens& prompt, int64_t max_tokens = 16) {
  return engine.generate(prompt, {.max_tokens = max_tokens, .sampler = {}}, go_on).tokens;
}

Tokens joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(Engine, ContinuesAsTheReferenceDoesOnAnyNumberOfRanks) {
  // Two kv heads and four heads: the third rank shares one.
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      Engine engine = make_engine(world);
      const auto result =
          engine.generate(reference("tokens"), {.max_tokens = 16, .sampler = {}}, go_on);
      EXPECT_EQ(result.tokens, reference("greedy"));
      EXPECT_EQ(result.finish_reason, FinishReason::kLength);
      EXPECT_EQ(result.num_prompt_tokens, 12);
      EXPECT_GT(result.prefill_seconds, 0);
      EXPECT_GT(result.decode_seconds, 0);
    });
  }
}

TEST(Engine, AnswersALongerPromptAsIfItWereTheFirst) {
  run_ranks(2, [](dist::World& world) {
    Engine used = make_engine(world);
    const Tokens prompt = reference("tokens");
    const Tokens next = joined(joined(prompt, generate(used, prompt)), {9, 8, 7});
    EXPECT_EQ(used.length(), 27);
    Engine fresh = make_engine(world);
    EXPECT_EQ(generate(used, next), generate(fresh, next));
    EXPECT_EQ(used.length(), fresh.length());
  });
}

TEST(Engine, ForgetsWhatAPromptDoesNotShare) {
  run_ranks(1, [](dist::World& world) {
    Engine engine = make_engine(world);
    const Tokens prompt = reference("tokens");
    const Tokens greedy = reference("greedy");
    const Tokens other = {1, 17, 203, 77, 3};
    Engine fresh = make_engine(world);
    const Tokens wanted = generate(fresh, other);
    EXPECT_EQ(generate(engine, prompt), greedy);
    EXPECT_EQ(generate(engine, other), wanted);
    EXPECT_EQ(generate(engine, prompt), greedy);
    EXPECT_EQ(generate(engine, prompt), greedy);
    engine.reset();
    EXPECT_EQ(engine.length(), 0);
    EXPECT_EQ(generate(engine, prompt), greedy);
  });
}

// A recurrent layer's state can't go back: what a prompt shares with the sequence before it is read
// again, and nothing is guessed.
TEST(Engine, AnswersWithRecurrentLayersAsIfEachPromptWereTheFirst) {
  for (const int n : {1, 2}) {
    run_ranks(n, [](dist::World& world) {
      const auto make = [&] {
        const std::string path = WEFT_SOURCE_DIR "/tests/models/data/families/lfm2";
        return Engine(models::load_model(*io::TensorFile::open(path), world.group()).model, 64);
      };
      const auto alone = [&](const Tokens& prompt) {
        Engine fresh = make();
        return generate(fresh, prompt);
      };
      Engine engine = make();
      const Tokens prompt = {3, 14, 15, 9, 26, 5, 35, 8, 9, 7}, other = {3, 14, 15, 50};
      const Tokens answer = generate(engine, prompt);
      EXPECT_EQ(answer, alone(prompt));
      const Tokens longer = joined(joined(prompt, answer), {9, 8, 7});
      EXPECT_EQ(generate(engine, longer), alone(longer));
      EXPECT_EQ(generate(engine, other), alone(other));
      EXPECT_EQ(generate(engine, prompt), answer);
      EXPECT_EQ(generate(engine, prompt), answer);
      const auto guessed =
          engine.generate(prompt, {.max_tokens = 16, .sampler = {}, .speculate = 4}, go_on);
      EXPECT_EQ(guessed.tokens, answer);
      EXPECT_EQ(guessed.num_guessed, 0);
    });
  }
}

TEST(Engine, ReadsAPromptOfManyPieces) {
  run_ranks(1, [](dist::World& world) {
    Tokens prompt;
    for (int64_t i = 0; i < 512; ++i) prompt.push_back(i * 7 % 256);
    Engine whole = make_engine(world, 512);
    Engine pieces = make_engine(world, 512);
    generate(pieces, {prompt.begin(), prompt.begin() + 100}, 0);
    generate(pieces, {prompt.begin(), prompt.begin() + 300}, 0);
    EXPECT_EQ(generate(whole, prompt, 1), generate(pieces, prompt, 1));
  });
}

TEST(Engine, OnlyReadsThePromptForZeroTokens) {
  run_ranks(1, [](dist::World& world) {
    Engine engine = make_engine(world);
    const auto result = engine.generate({1, 2, 3}, {.max_tokens = 0, .sampler = {}}, [](int64_t) {
      ADD_FAILURE() << "no token was wanted";
      return Verdict::kStop;
    });
    EXPECT_TRUE(result.tokens.empty());
    EXPECT_STREQ(to_text(result.finish_reason), "length");
    EXPECT_EQ(engine.length(), 3);
  });
}

TEST(Engine, EndsWhenTheContextIsFull) {
  run_ranks(2, [](dist::World& world) {
    Engine engine = make_engine(world, 16);
    const Tokens greedy = reference("greedy");
    const auto result =
        engine.generate(reference("tokens"), {.max_tokens = 100, .sampler = {}}, go_on);
    // Four tokens fit behind the twelve of the prompt; the fifth need not be read.
    EXPECT_EQ(result.tokens, Tokens(greedy.begin(), greedy.begin() + 5));
    EXPECT_STREQ(to_text(result.finish_reason), "length");
    EXPECT_EQ(engine.length(), 16);
  });
}

TEST(Engine, DropsTheTokenThatEndsTheText) {
  run_ranks(2, [](dist::World& world) {
    Engine engine = make_engine(world);
    const Tokens greedy = reference("greedy");
    const auto ending = [&](Verdict verdict) {
      return engine.generate(
          reference("tokens"), {.max_tokens = 16, .sampler = {}},
          [&](int64_t token) { return token == greedy[3] ? verdict : Verdict::kContinue; });
    };
    const auto stopped = ending(Verdict::kStop);
    EXPECT_EQ(stopped.tokens, Tokens(greedy.begin(), greedy.begin() + 3));
    EXPECT_STREQ(to_text(stopped.finish_reason), "stop");
    EXPECT_STREQ(to_text(ending(Verdict::kCancel).finish_reason), "cancelled");
    EXPECT_EQ(generate(engine, reference("tokens")), greedy);
  });
}

TEST(Engine, ShowsTokensToRankZeroAlone) {
  run_ranks(2, [](dist::World& world) {
    Engine engine = make_engine(world);
    Tokens seen;
    engine.generate(reference("tokens"), {.max_tokens = 16, .sampler = {}}, [&](int64_t token) {
      seen.push_back(token);
      return Verdict::kContinue;
    });
    EXPECT_EQ(seen, world.rank() == 0 ? reference("greedy") : Tokens());
  });
}

TEST(Engine, DrawsTheSameTokensOnAllRanks) {
  run_ranks(3, [](dist::World& world) {
    Engine engine = make_engine(world);
    GenerateOptions options;
    options.max_tokens = 24;
    options.sampler = {.temperature = 1, .seed = 5};
    const Tokens drawn = engine.generate({1, 17, 203}, options, go_on).tokens;
    at::Tensor of_root = at::tensor(drawn, at::kLong);
    world.group().broadcast(of_root, 0);
    const auto* data = of_root.const_data_ptr<int64_t>();
    EXPECT_EQ(drawn, Tokens(data, data + of_root.numel()));
    EXPECT_EQ(engine.generate({1, 17, 203}, options, go_on).tokens, drawn);
    options.sampler.seed = 6;
    EXPECT_NE(engine.generate({1, 17, 203}, options, go_on).tokens, drawn);
  });
}

TEST(Engine, RefusesPromptsThatItCannotRead) {
  run_ranks(1, [](dist::World& world) {
    Engine engine = make_engine(world, 16);
    const auto refusal = [&](const Tokens& prompt) {
      return error_text([&] { generate(engine, prompt); });
    };
    EXPECT_EQ(refusal({}), "ConfigError: generate: the prompt is empty; give at least one token");
    EXPECT_EQ(refusal({1, 256}), "ConfigError: generate: token 256, expected 0 to 255");
    EXPECT_EQ(refusal({-1}), "ConfigError: generate: token -1, expected 0 to 255");
    EXPECT_EQ(refusal(Tokens(17, 1)),
              "ConfigError: generate: 17 tokens of prompt, the context holds 16; use a shorter "
              "prompt or a larger --ctx-size");
    EXPECT_EQ(generate(engine, Tokens(16, 1)).size(), 1U);
  });
}

TEST(Engine, RefusesAContextThatTheModelDoesNotHave) {
  run_ranks(1, [](dist::World& world) {
    const auto refusal = [&](int64_t context) {
      return error_text([&] { make_engine(world, context); });
    };
    EXPECT_EQ(refusal(0), "ConfigError: --ctx-size: 0, expected 1 to 512 for this model");
    EXPECT_EQ(refusal(513), "ConfigError: --ctx-size: 513, expected 1 to 512 for this model");
    EXPECT_EQ(refusal(512), "no error");
  });
}

}  // namespace
}  // namespace weft::generate
