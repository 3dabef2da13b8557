// The answer with guesses against the one without.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/generate/engine.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/panel_linear.h"

namespace weft::generate {
namespace {

using test::run_ranks;
using testing::error_text;
using Tokens = std::vector<int64_t>;

constexpr char kCounting[] = "one two three one two three one two three one two three one two";
constexpr char kStory[] = "Once upon a time, there was a little girl named Lily. She lived in a";

// The model of set-up, its activations rounded to `bits`; 0: not at all.
class RealModel {
 public:
  RealModel(const dist::World& world, int64_t bits)
      : file_(io::TensorFile::open(test::smollm2_path())),
        tokenizer_(models::load_tokenizer(*file_)),
        model_(models::load_model(*file_, world.group()).model) {
    if (bits != 0) nn::put_in_panels(*model_, bits);
  }

  Tokens encode(const std::string& text) const {
    const auto ids = tokenizer_.encode(text);
    return {ids.begin(), ids.end()};
  }
  Engine engine(int64_t context = 128) const { return Engine(model_, context); }
  // Of all positions, [T, V].
  at::Tensor logits(const Tokens& tokens) const {
    const at::Tensor ids_BT = at::tensor(tokens, at::kLong).unsqueeze(0);
    return model_->logits(model_->forward(ids_BT, nullptr)).squeeze(0);
  }

 private:
  std::shared_ptr<const io::TensorFile> file_;
  text::Tokenizer tokenizer_;
  std::shared_ptr<models::CausalLM> model_;
};

Verdict never_stop(int64_t) { return Verdict::kContinue; }

// Both answers; returns the one with guesses.
GenerateResult expect_same(Engine& engine, const Tokens& prompt, GenerateOptions options,
                           const TokenSink& sink = never_stop) {
  engine.reset();
  options.speculate = 0;
  const GenerateResult plain = engine.generate(prompt, options, sink);
  const int64_t length = engine.length();
  EXPECT_EQ(plain.num_guessed, 0);
  engine.reset();
  options.speculate = kMostGuesses;
  GenerateResult guessed = engine.generate(prompt, options, sink);
  EXPECT_EQ(guessed.tokens, plain.tokens);
  EXPECT_EQ(guessed.finish_reason, plain.finish_reason);
  EXPECT_EQ(engine.length(), length);
  EXPECT_LE(guessed.num_guessed_right, guessed.num_guessed);
  return guessed;
}

GenerateOptions drawing(double temperature, int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampler.temperature = temperature;
  options.sampler.seed = 3;
  return options;
}

TEST(Speculation, ChangesNoTokenOfTheRealModel) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      for (const int64_t bits : {8, 16}) {
        const RealModel model(world, bits);
        Engine engine = model.engine();
        const Tokens counting = model.encode(kCounting), story = model.encode(kStory);
        EXPECT_GT(expect_same(engine, counting, drawing(0, 40)).num_guessed_right, 4);
        expect_same(engine, story, drawing(0, 32));
        EXPECT_GT(expect_same(engine, counting, drawing(0.7, 40)).num_guessed, 0);
        expect_same(engine, story, drawing(1, 24));
      }
    });
  }
}

// Drawn in a way that changes the logits, of which none is told.
TEST(Logprobs, AreTheModelsOwnWithGuessesAndWithout) {
  for (const int n : {1, 3}) {
    run_ranks(n, [](dist::World& world) {
      const c10::InferenceMode inference;
      const RealModel model(world, 0);
      Engine engine = model.engine();
      const Tokens prompt = model.encode(kCounting);
      GenerateOptions options = drawing(0.7, 12);
      options.sampler.repeat_penalty = 1.3;
      options.num_logprobs = 3;
      for (const int64_t speculate : {0, 4}) {
        engine.reset();
        options.speculate = speculate;
        const GenerateResult result = engine.generate(prompt, options, never_stop);
        Tokens all = prompt;
        all.insert(all.end(), result.tokens.begin(), result.tokens.end());
        const at::Tensor logprobs_TV = at::log_softmax(model.logits(all), -1, at::kDouble);
        ASSERT_EQ(result.logprobs.size(), world.rank() == 0 ? 12U : 0U);
        for (size_t i = 0; i < result.logprobs.size(); ++i) {
          const at::Tensor row_V = logprobs_TV[static_cast<int64_t>(prompt.size() + i) - 1];
          const auto [best_3, ids_3] = row_V.topk(3);
          const DrawnToken& told = result.logprobs[i];
          EXPECT_EQ(told.drawn.token, result.tokens[i]);
          EXPECT_NEAR(told.drawn.logprob, row_V[told.drawn.token].item<double>(), 1e-4);
          ASSERT_EQ(told.likeliest.size(), 3U);
          for (int64_t k = 0; k < 3; ++k) {
            EXPECT_NEAR(told.likeliest[k].logprob, best_3[k].item<double>(), 1e-4);
          }
          EXPECT_EQ(told.likeliest[0].token, ids_3[0].item<int64_t>());
        }
      }
    });
  }
}

TEST(Speculation, ChangesNoTokenWithActivationsAsTheyAre) {
  run_ranks(2, [](dist::World& world) {
    const RealModel model(world, 0);
    Engine engine = model.engine();
    const Tokens counting = model.encode(kCounting);
    EXPECT_GT(expect_same(engine, counting, drawing(0, 24)).num_guessed_right, 4);
    expect_same(engine, model.encode(kStory), drawing(0, 24));
  });
}

TEST(Speculation, EndsWhereTheAnswerEnds) {
  run_ranks(2, [](dist::World& world) {
    const RealModel model(world, 16);
    const Tokens prompt = model.encode(kCounting);
    Engine engine = model.engine();
    for (const int64_t most : {1, 2, 3, 6, 9}) expect_same(engine, prompt, drawing(0, most));
    for (const Verdict verdict : {Verdict::kStop, Verdict::kCancel}) {
      for (const int64_t end : {0, 1, 2, 4, 7}) {
        int64_t seen = 0;
        // Called for one answer, then for the other.
        const auto sink = [&](int64_t) {
          if (seen++ < end) return Verdict::kContinue;
          seen = 0;
          return verdict;
        };
        const auto result = expect_same(engine, prompt, drawing(0, 40), sink);
        EXPECT_EQ(static_cast<int64_t>(result.tokens.size()), end);
      }
    }
    const auto size = static_cast<int64_t>(prompt.size());
    for (const int64_t room : {0, 1, 2, 4, 7}) {
      Engine small = model.engine(size + room);
      const auto result = expect_same(small, prompt, drawing(0, 40));
      EXPECT_EQ(static_cast<int64_t>(result.tokens.size()), room + 1);
    }
  });
}

TEST(Speculation, LeavesAnEngineThatGoesOn) {
  run_ranks(1, [](dist::World& world) {
    const RealModel model(world, 16);
    Engine engine = model.engine(), fresh = model.engine();
    GenerateOptions options = drawing(0, 20);
    options.speculate = kMostGuesses;
    Tokens prompt = model.encode(kCounting);
    const Tokens first = engine.generate(prompt, options, never_stop).tokens;
    prompt.insert(prompt.end(), first.begin(), first.end());
    prompt.push_back(prompt.front());
    EXPECT_EQ(engine.generate(prompt, options, never_stop).tokens,
              fresh.generate(prompt, drawing(0, 20), never_stop).tokens);
  });
}

TEST(Speculation, RefusesMoreGuessesThanAreReadOneByOne) {
  run_ranks(1, [](dist::World& world) {
    const RealModel model(world, 16);
    Engine engine = model.engine();
    const auto refusal = [&](int64_t most) {
      GenerateOptions options = drawing(0, 1);
      options.speculate = most;
      return error_text([&] { engine.generate({1}, options, never_stop); });
    };
    EXPECT_EQ(refusal(16), "ConfigError: --speculate: 16, expected 0 to 15");
    EXPECT_EQ(refusal(-1), "ConfigError: --speculate: -1, expected 0 to 15");
    EXPECT_EQ(refusal(15), "no error");
  });
}

}  // namespace
}  // namespace weft::generate
