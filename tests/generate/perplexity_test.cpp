#include "weft/generate/scoring/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/generate/scoring/divergence.h"
#include "weft/models/load/load.h"

namespace weft::generate {
namespace {

using test::run_ranks;
using testing::error_text;
using Ranges = std::vector<std::array<int64_t, 3>>;

PerplexityOptions perplexity_options(int64_t context, int64_t stride) {
  PerplexityOptions options;
  options.context = context;
  options.stride = stride;
  return options;
}

Ranges windows(int64_t num_tokens, int64_t context, int64_t stride) {
  Ranges list;
  for (const auto& window : score_windows(num_tokens, perplexity_options(context, stride))) {
    list.push_back({window.start, window.length, window.first_scored});
  }
  return list;
}

std::string window_error(int64_t num_tokens, int64_t context, int64_t stride) {
  return error_text([&] { windows(num_tokens, context, stride); });
}

TEST(ScoreWindows, SideBySideScoreTheSecondHalf) {
  EXPECT_EQ(windows(20, 8, 0), (Ranges{{0, 8, 5}, {8, 8, 5}}));
  EXPECT_EQ(windows(9, 9, 0), (Ranges{{0, 9, 5}}));
}

TEST(ScoreWindows, ByStrideScoreEachTokenOnce) {
  EXPECT_EQ(windows(10, 4, 2), (Ranges{{0, 4, 1}, {2, 4, 2}, {4, 4, 2}, {6, 4, 2}}));
  EXPECT_EQ(windows(5, 4, 4), (Ranges{{0, 4, 1}}));
  EXPECT_EQ(windows(3, 8, 4), (Ranges{{0, 3, 1}}));
}

TEST(ScoreWindows, RefuseWhatScoresNothing) {
  EXPECT_EQ(window_error(7, 8, 0),
            "ConfigError: generate.perplexity: 7 tokens of text, expected at least one window of "
            "8; give a longer text or a smaller --ctx-size");
  EXPECT_EQ(window_error(9, 3, 0),
            "ConfigError: generate.perplexity: windows of 3 tokens, expected at least 4 so that a "
            "second half can be scored");
  EXPECT_EQ(window_error(9, 4, 5),
            "ConfigError: generate.perplexity: stride 5, expected 1 to the window's 4; a longer "
            "one skips tokens");
  EXPECT_EQ(window_error(1, 4, 2),
            "ConfigError: generate.perplexity: 1 tokens of text, expected at least 2; give a "
            "longer text");
}

std::vector<int64_t> some_tokens(int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(i * i * 7 % 251);
  return tokens;
}

void ignore(const PerplexityResult&, int64_t) {}

// From the whole logits, token by token.
double mean_loss_of(models::CausalLM& model, const std::vector<int64_t>& tokens,
                    const std::vector<ScoredWindow>& windows) {
  double sum = 0;
  int64_t count = 0;
  for (const ScoredWindow& window : windows) {
    const std::vector<int64_t> part(tokens.begin() + window.start,
                                    tokens.begin() + window.start + window.length);
    const at::Tensor ids = at::tensor(part, at::kLong).unsqueeze(0);
    const at::Tensor log_p =
        model.logits(model.forward(ids, nullptr)).squeeze(0).to(at::kDouble).log_softmax(-1);
    for (int64_t i = window.first_scored; i < window.length; ++i, ++count) {
      sum -= log_p[i - 1][part[static_cast<size_t>(i)]].item<double>();
    }
  }
  return sum / static_cast<double>(count);
}

TEST(Perplexity, EqualsTheSumOverWholeLogitsOnAnyNumberOfRanks) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const auto model =
          models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")),
                             world.group())
              .model;
      const c10::InferenceMode inference;
      const auto tokens = some_tokens(400);
      for (const PerplexityOptions& options :
           {perplexity_options(300, 0), perplexity_options(50, 20)}) {
        const PerplexityResult result = perplexity(*model, tokens, options, ignore);
        const double expected = mean_loss_of(*model, tokens, score_windows(400, options));
        EXPECT_NEAR(result.mean_loss, expected, 1e-5 * expected);
        EXPECT_NEAR(result.perplexity, std::exp(expected), 1e-4 * std::exp(expected));
        EXPECT_GT(result.standard_error, 0);
      }
    });
  }
}

TEST(Perplexity, ReadsWindowsByWayOfACache) {
  const auto model =
      models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")), dist::Group())
          .model;
  const auto tokens = some_tokens(400);
  PerplexityOptions options = perplexity_options(50, 20);
  const double without = perplexity(*model, tokens, options, ignore).mean_loss;
  options.uses_cache = true;
  EXPECT_NEAR(perplexity(*model, tokens, options, ignore).mean_loss, without, 1e-5 * without);
  model->set_cache_dtype(at::kHalf);
  const double rounded = perplexity(*model, tokens, options, ignore).mean_loss;
  EXPECT_NEAR(rounded, without, 1e-3 * without);
  EXPECT_NE(rounded, without);
}

// Its ropes turn by the length of a text, so a cache may be no longer than the last window.
TEST(Perplexity, ReadsAShortLastWindowAsWithoutACache) {
  const auto file = io::TensorFile::open(test::family_path("phi3_long", "model.safetensors"));
  const auto model = models::load_model(*file, dist::Group()).model;
  auto tokens = some_tokens(12);
  for (int64_t& token : tokens) token %= model->config().vocab_size;
  PerplexityOptions options = perplexity_options(48, 24);
  const double without = perplexity(*model, tokens, options, ignore).mean_loss;
  options.uses_cache = true;
  EXPECT_NEAR(perplexity(*model, tokens, options, ignore).mean_loss, without, 1e-5 * without);
}

TEST(Perplexity, PutsTheFirstTokenInEachWindow) {
  const auto model =
      models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")), dist::Group())
          .model;
  auto tokens = some_tokens(32);
  PerplexityOptions options = perplexity_options(16, 0);
  options.first_token = 3;
  const double with_first = perplexity(*model, tokens, options, ignore).mean_loss;
  tokens[0] = tokens[16] = 3;
  options.first_token = -1;
  EXPECT_EQ(perplexity(*model, tokens, options, ignore).mean_loss, with_first);
}

TEST(Perplexity, RefusesTokensOfAnotherModel) {
  const auto model =
      models::load_model(*io::TensorFile::open(test::model_data("mlx/plain_f32")), dist::Group())
          .model;
  EXPECT_EQ(
      error_text([&] {
        perplexity(*model, std::vector<int64_t>{1, 2, 256, 4}, perplexity_options(4, 0), ignore);
      }),
      "ConfigError: generate.perplexity: token 256, expected 0 to 255; the tokenizer is of "
      "another model");
}

// Of all positions at once, by torch's own divergence.
double mean_divergence(models::CausalLM& model, models::CausalLM& reference,
                       const std::vector<int64_t>& tokens) {
  const at::Tensor ids = at::tensor(tokens, at::kLong).unsqueeze(0);
  const auto log_p = [&](models::CausalLM& each) {
    return each.logits(each.forward(ids, nullptr)).squeeze(0).to(at::kDouble).log_softmax(-1);
  };
  const auto scored = at::indexing::Slice(0, -1);
  return at::kl_div(log_p(model).index({scored}), log_p(reference).index({scored}),
                    at::Reduction::Sum, true)
             .item<double>() /
         static_cast<double>(tokens.size() - 1);
}

TEST(Divergence, IsTorchsOnAnyNumberOfRanksAndNoneOfAModelFromItself) {
  for (const int n : {1, 2, 3}) {
    run_ranks(n, [](dist::World& world) {
      const auto load = [&](const char* name) {
        const auto file =
            io::TensorFile::open(std::string(WEFT_SOURCE_DIR "/tests/models/data/mlx/") + name);
        return models::load_model(*file, world.group()).model;
      };
      const auto reference = load("plain_f32");
      const auto model = load("affine_b4_g64_f32");
      const c10::InferenceMode inference;
      const auto tokens = some_tokens(100);
      const PerplexityOptions options = perplexity_options(100, 100);
      const auto none = [](int64_t, int64_t) {};
      const auto result = divergence(*model, *reference, tokens, options, none);
      const double expected = mean_divergence(*model, *reference, tokens);
      EXPECT_GT(expected, 1e-4);
      EXPECT_NEAR(result.mean, expected, 1e-5 * expected);
      EXPECT_EQ(result.num_scored, 99);
      EXPECT_TRUE(result.median <= result.p99_9 && result.p99_9 <= result.largest);
      EXPECT_GT(result.largest, result.mean);
      EXPECT_LT(result.same_best, 1);
      const double perplexity_of = perplexity(*model, tokens, options, ignore).perplexity;
      EXPECT_NEAR(result.perplexity, perplexity_of, 1e-4 * perplexity_of);
      const auto itself = divergence(*reference, *reference, tokens, options, none);
      EXPECT_EQ(itself.largest, 0);
      EXPECT_EQ(itself.same_best, 1);
    });
  }
}

}  // namespace
}  // namespace weft::generate
