#include "weft/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/error_text.h"

namespace weft::generate {
namespace {

using testing::error_text;

constexpr int kDraws = 4000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr char kNotFinite[] =
    "FormatError: generate: the model's logits are not finite; its weights or their reading are "
    "broken";

// Logits of given probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// How often each token was drawn, as a share of all draws.
std::map<int64_t, double> shares(const SamplerOptions& options, const std::vector<float>& logits) {
  Sampler sampler(options);
  std::map<int64_t, double> result;
  for (int i = 0; i < kDraws; ++i) result[sampler.sample(logits)] += 1.0 / kDraws;
  return result;
}

std::set<int64_t> drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<int64_t> ids;
  for (const auto& [id, share] : shares(options, logits)) ids.insert(id);
  return ids;
}

std::vector<int64_t> sequence(const SamplerOptions& options, const std::vector<float>& logits) {
  Sampler sampler(options);
  std::vector<int64_t> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(sampler.sample(logits));
  return ids;
}

std::string refusal(const SamplerOptions& options) {
  return error_text([&] { check_sampler(options); });
}

std::string refusal_of(double temperature, const std::vector<float>& logits) {
  return error_text([&] { Sampler({.temperature = temperature}).sample(logits); });
}

TEST(Sampler, TakesTheLikeliestAtTemperatureZero) {
  Sampler sampler(SamplerOptions{});
  EXPECT_EQ(sampler.sample(std::vector<float>{-3, 1, 7, 6.999F}), 2);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -9}), 1);
}

TEST(Sampler, GivesTiesToTheLowerToken) {
  Sampler sampler(SamplerOptions{});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 5, 5}), 1);
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2}, {5, 1, 5, 5, 5}), (std::set<int64_t>{0, 2}));
}

TEST(Sampler, DrawsAsOftenAsTheSoftmaxSays) {
  const auto result = shares({.temperature = 1}, logits_of({0.1, 0.6, 0.3}));
  EXPECT_NEAR(result.at(0), 0.1, 0.03);
  EXPECT_NEAR(result.at(1), 0.6, 0.04);
  EXPECT_NEAR(result.at(2), 0.3, 0.04);
}

TEST(Sampler, SharpensOrFlattensByTheTemperature) {
  const std::vector<float> logits = logits_of({0.2, 0.8});
  // p^(1/t), normalized: 0.2^2 / (0.2^2 + 0.8^2) and its square root's counterpart.
  EXPECT_NEAR(shares({.temperature = 0.5}, logits).at(0), 0.0588, 0.02);
  EXPECT_NEAR(shares({.temperature = 2}, logits).at(0), 0.3333, 0.04);
}

TEST(Sampler, KeepsTheTopK) {
  const std::vector<float> logits = logits_of({0.1, 0.3, 0.2, 0.4});
  const auto result = shares({.temperature = 1, .top_k = 2}, logits);
  EXPECT_EQ(result.size(), 2U);
  EXPECT_NEAR(result.at(1), 3.0 / 7, 0.04);
  EXPECT_NEAR(result.at(3), 4.0 / 7, 0.04);
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 1}, logits), (std::set<int64_t>{3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 99}, logits).size(), 4U);
}

TEST(Sampler, KeepsTheFewestThatReachTopP) {
  const std::vector<float> logits = logits_of({0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.6}, logits), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.8}, logits), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.0}, logits), (std::set<int64_t>{3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 1.0}, logits).size(), 4U);
}

TEST(Sampler, KeepsWhatReachesMinPOfTheLikeliest) {
  const std::vector<float> logits = logits_of({0.1, 0.3, 0.2, 0.4});
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.6}, logits), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.4}, logits), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 1.0}, logits), (std::set<int64_t>{3}));
}

TEST(Sampler, AppliesTopPWithinTheTopK) {
  // Of the two kept, the first alone holds 4/7.
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .top_p = 0.5}, logits_of({0.1, 0.3, 0.2, 0.4})),
            (std::set<int64_t>{3}));
}

TEST(Sampler, FiltersBeforeTheTemperature) {
  // At temperature 50 the four would be nearly alike, and top-p 0.6 would keep three.
  EXPECT_EQ(drawn({.temperature = 50, .top_p = 0.6}, logits_of({0.1, 0.3, 0.2, 0.4})),
            (std::set<int64_t>{1, 3}));
}

// A draw by the definition: all sorted, filtered one after the other, and of those that are left
// the one with the largest sum of logit and Gumbel's number.
int64_t draw_by_definition(const SamplerOptions& options, const std::vector<float>& logits,
                           uint64_t index) {
  std::vector<std::pair<double, int64_t>> sorted;
  for (size_t id = 0; id < logits.size(); ++id) {
    sorted.emplace_back(-static_cast<double>(logits[id]), static_cast<int64_t>(id));
  }
  std::ranges::sort(sorted);
  if (options.top_k > 0) sorted.resize(static_cast<size_t>(options.top_k));
  const auto weight = [&](size_t i) -> double {
    return std::exp(static_cast<float>(sorted[0].first - sorted[i].first));
  };
  double sum = 0, covered = 0;
  for (size_t i = 0; i < sorted.size(); ++i) sum += weight(i);
  size_t kept = 0;
  while (kept < sorted.size() &&
         (kept == 0 || options.top_p == 1 || covered < options.top_p * sum) &&
         weight(kept) >= options.min_p) {
    covered += weight(kept++);
  }
  sorted.resize(kept);
  const nn::GumbelDraw draw{options.seed, index, options.temperature};
  return std::ranges::max_element(
             sorted, {},
             [&](const auto& each) { return nn::gumbel_sum(draw, each.second, -each.first); })
      ->second;
}

TEST(Sampler, DrawsFromALargeVocabularyAsIfAllWereSorted) {
  std::mt19937_64 random(1);
  std::vector<float> logits(5000);
  // Some are equal.
  for (float& logit : logits) logit = static_cast<float>(random() % 4000) / 500;
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 0.7},
        {.temperature = 1, .top_p = 0.9},
        {.temperature = 1, .top_p = 0.02, .seed = 8},
        {.temperature = 2, .min_p = 0.05},
        {.temperature = 1, .top_k = 100, .top_p = 0.5},
        {.temperature = 3, .top_k = 4999, .top_p = 0.999, .min_p = 0.001}}) {
    Sampler sampler(options);
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_EQ(sampler.sample(logits), draw_by_definition(options, logits, i));
    }
  }
}

TEST(Sampler, DrawsAmongTheLikeliestAtTheLowestTemperatures) {
  const double lowest = std::numeric_limits<double>::denorm_min();
  for (const double top_p : {1.0, 0.9}) {
    EXPECT_EQ(drawn({.temperature = lowest, .top_p = top_p}, {3, 1, 3, 2.999F}),
              (std::set<int64_t>{0, 2}));
  }
}

TEST(Sampler, TakesWhatRanksHaveDrawnWhereAnyTokenMayCome) {
  std::mt19937_64 random(2);
  std::vector<float> logits(900);
  const SamplerOptions options{.temperature = 0.9, .seed = 6};
  Sampler whole(options), cut(options);
  for (int i = 0; i < 50; ++i) {
    for (float& logit : logits) logit = static_cast<float>(random() % 4000) / 500;
    const auto drawn = nn::largest_gumbel_sum(*cut.next_draw(), logits, 0);
    EXPECT_EQ(cut.take_drawn(drawn), whole.sample(logits));
  }
  EXPECT_FALSE(Sampler({}).next_draw());
  EXPECT_FALSE(Sampler({.temperature = 1, .top_k = 3}).next_draw());
  EXPECT_FALSE(Sampler({.temperature = 1, .top_p = 0.9}).next_draw());
  EXPECT_FALSE(Sampler({.temperature = 1, .min_p = 0.1}).next_draw());
  EXPECT_FALSE(Sampler({.temperature = 1, .presence_penalty = 1}).next_draw());
  EXPECT_EQ(error_text([&] { cut.take_drawn({kNan, 3}); }), kNotFinite);
}

TEST(Sampler, NeverDrawsWhatIsRuledOut) {
  EXPECT_EQ(drawn({.temperature = 100}, {1, -kInfinity, 1, -kInfinity}), (std::set<int64_t>{0, 2}));
}

// What each of four draws from the same logits takes at temperature 0, behind the prompt 3, 3.
std::vector<int64_t> four_behind_threes(SamplerOptions options, const std::vector<float>& logits) {
  Sampler sampler(options);
  sampler.begin(std::vector<int64_t>{3, 3});
  std::vector<int64_t> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(sampler.sample(logits));
  return ids;
}

TEST(Sampler, LowersWhatCameBeforeByEachPenaltysOwnRule) {
  using Ids = std::vector<int64_t>;
  const std::vector<float> logits = {1, 2.5, 2, 4};
  EXPECT_FALSE(Sampler({}).needs_logits());
  EXPECT_TRUE(Sampler({.presence_penalty = 1}).needs_logits());
  // The prompt's 4 / 2 is less than 2.5, which then is 1.25; 2 is first among equals.
  EXPECT_EQ(four_behind_threes({.repeat_penalty = 2}, logits), (Ids{1, 2, 3, 3}));
  // Only the last token counts: it is never taken twice.
  EXPECT_EQ(four_behind_threes({.repeat_penalty = 4, .repeat_last_n = 1}, logits),
            (Ids{1, 3, 1, 3}));
  // Negative logits grow in size.
  EXPECT_EQ(four_behind_threes({.repeat_penalty = 2}, {-9, -2.5, -9, -2}), (Ids{1, 3, 3, 3}));
  // The prompt does not count; a token loses 1.75 once, whatever its number.
  EXPECT_EQ(four_behind_threes({.presence_penalty = 1.75}, logits), (Ids{3, 1, 3, 3}));
  // 4, 3, 2, 1 as often as it is taken; 2.5 once.
  EXPECT_EQ(four_behind_threes({.frequency_penalty = 1}, logits), (Ids{3, 3, 1, 2}));
  EXPECT_EQ(four_behind_threes({.logit_bias = {{0, 100}, {3, -100}}}, logits), (Ids{0, 0, 0, 0}));
}

TEST(Sampler, RepeatsItselfForOneSeedOnly) {
  const std::vector<float> logits = logits_of({0.25, 0.25, 0.25, 0.25});
  EXPECT_EQ(sequence({.temperature = 1, .seed = 7}, logits),
            sequence({.temperature = 1, .seed = 7}, logits));
  EXPECT_NE(sequence({.temperature = 1, .seed = 7}, logits),
            sequence({.temperature = 1, .seed = 8}, logits));
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(refusal_of(temperature, {kNan, 1, 2}), kNotFinite);
    EXPECT_EQ(refusal_of(temperature, {1, kNan, 2}), kNotFinite);
    EXPECT_EQ(refusal_of(temperature, {1, 2, kInfinity}), kNotFinite);
    EXPECT_EQ(refusal_of(temperature, {-kInfinity, -kInfinity}), kNotFinite);
    EXPECT_EQ(refusal_of(temperature, {}), kNotFinite);
  }
}

// A thousand logits, few enough values that some are alike.
std::vector<float> many_logits(std::mt19937& random) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(std::round(normal(random) * 64) / 64);
  for (int i = 0; i < 20; ++i) logits[random() % 1000] = -kInfinity;
  return logits;
}

TEST(Sampler, DrawsTheSameTokenFromTheLikeliestAlone) {
  std::mt19937 random(5);
  int64_t num_cases = 0;
  for (const double temperature : {0.0, 0.7, 1.5}) {
    for (const int64_t top_k : {0, 1, 20, 90}) {
      for (const double top_p : {1.0, 0.8}) {
        for (const bool has_penalties : {false, true}) {
          SamplerOptions options{.temperature = temperature, .top_k = top_k, .top_p = top_p};
          options.min_p = top_k == 20 ? 0.05 : 0;
          options.seed = random();
          if (has_penalties) {
            options.repeat_penalty = 1.3;
            options.repeat_last_n = 12;
            options.presence_penalty = 0.5;
            options.frequency_penalty = 1;
            options.logit_bias = {{3, -100}, {4, -0.5}};
          }
          Sampler whole(options), cut(options);
          for (Sampler* each : {&whole, &cut}) each->begin(std::vector<int64_t>{1, 5, 5, 900});
          EXPECT_EQ(cut.num_likeliest() == 0, temperature > 0 && top_k == 0);
          for (int step = 0; step < 60 && cut.num_likeliest() > 0; ++step, ++num_cases) {
            const std::vector<float> logits = many_logits(random);
            std::vector<nn::Largest> likeliest(static_cast<size_t>(cut.num_likeliest()));
            nn::largest(logits, likeliest);
            ASSERT_EQ(cut.sample_likeliest(likeliest), whole.sample(logits)) << num_cases;
          }
        }
      }
    }
  }
  EXPECT_GT(num_cases, 2000);
}

TEST(Sampler, NeedsAllLogitsWhereSomeMayRise) {
  const auto needed = [](const SamplerOptions& options) {
    return Sampler(options).num_likeliest();
  };
  EXPECT_EQ(needed({}), 1);
  EXPECT_EQ(needed({.temperature = 1, .top_k = 7}), 7);
  EXPECT_EQ(needed({.temperature = 1, .top_k = 7, .logit_bias = {{5, -1}, {6, 0}}}), 9);
  EXPECT_EQ(needed({.temperature = 1, .top_p = 0.5}), 0);
  EXPECT_EQ(needed({.logit_bias = {{5, 1}}}), 0);
  EXPECT_EQ(needed({.repeat_penalty = 0.9}), 0);
  EXPECT_EQ(needed({.presence_penalty = -1}), 0);
  EXPECT_EQ(needed({.frequency_penalty = -1}), 0);
  EXPECT_EQ(error_text([] {
              Sampler({.temperature = 1, .top_k = 2})
                  .sample_likeliest(std::vector<nn::Largest>{{kNan, 3}, {1, 4}});
            }),
            kNotFinite);
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  EXPECT_EQ(refusal({.temperature = -1}), "ConfigError: --temp: -1, expected 0 to 100");
  EXPECT_EQ(refusal({.temperature = std::nan("")}), "ConfigError: --temp: nan, expected 0 to 100");
  EXPECT_EQ(refusal({.temperature = HUGE_VAL}), "ConfigError: --temp: inf, expected 0 to 100");
  EXPECT_EQ(refusal({.top_k = -2}), "ConfigError: --top-k: -2, expected 0 or more");
  EXPECT_EQ(refusal({.top_p = 1.5}), "ConfigError: --top-p: 1.5, expected 0 to 1");
  EXPECT_EQ(refusal({.min_p = -0.5}), "ConfigError: --min-p: -0.5, expected 0 to 1");
  EXPECT_EQ(refusal({.repeat_penalty = 0}),
            "ConfigError: --repeat-penalty: 0, expected 0.01 to 100");
  EXPECT_EQ(refusal({.repeat_last_n = -2}), "ConfigError: repeat last n: -2, expected -1 or more");
  EXPECT_EQ(refusal({.presence_penalty = 3}),
            "ConfigError: --presence-penalty: 3, expected -2 to 2");
  EXPECT_EQ(refusal({.frequency_penalty = -3}),
            "ConfigError: --frequency-penalty: -3, expected -2 to 2");
  EXPECT_EQ(refusal({.logit_bias = {{5, 101}}}),
            "ConfigError: --logit-bias: 101, expected -100 to 100");
  EXPECT_EQ(refusal({.logit_bias = {{5, 1}, {5, 2}}}),
            "ConfigError: logit bias: token 5 is given twice, expected once");
  EXPECT_EQ(error_text([] {
              check_biases({.logit_bias = {{5, 1}}}, 5);
            }),
            "ConfigError: logit bias: token 5, expected 0 to 4");
  EXPECT_EQ(refusal({}), "no error");
}

}  // namespace
}  // namespace weft::generate
