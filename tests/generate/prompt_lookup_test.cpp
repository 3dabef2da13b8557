#include "weft/generate/prompt_lookup.h"

#include <gtest/gtest.h>

namespace weft::generate {
namespace {

using Tokens = std::vector<int64_t>;

PromptLookup lookup_of(const Tokens& text, int64_t most) { return PromptLookup(text, most); }

TEST(PromptLookup, GuessesWhatFollowedTheSameTokens) {
  EXPECT_EQ(lookup_of({1, 2, 3, 4, 5, 9, 1, 2, 3}, 2).guess(8), (Tokens{4, 5}));
}

TEST(PromptLookup, PrefersTheLongerEnding) {
  EXPECT_EQ(lookup_of({1, 2, 3, 4, 8, 2, 3, 7, 9, 1, 2, 3}, 1).guess(8), Tokens{4});
  EXPECT_EQ(lookup_of({1, 2, 3, 4, 8, 2, 3, 7, 9, 5, 2, 3}, 1).guess(8), Tokens{7});
}

TEST(PromptLookup, TakesTheLastPlace) {
  EXPECT_EQ(lookup_of({1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}, 1).guess(8), Tokens{5});
}

TEST(PromptLookup, GoesOnRepeatingWhatRepeats) {
  PromptLookup lookup({}, 15);
  for (const int64_t token : {7, 8, 9, 7, 8, 9}) lookup.add(token);
  lookup.learn(2, 2);
  lookup.learn(4, 4);
  lookup.learn(8, 8);
  EXPECT_EQ(lookup.guess(8), (Tokens{7, 8, 9, 7, 8, 9, 7, 8}));
}

TEST(PromptLookup, HasNothingToSayAboutWhatIsNew) {
  EXPECT_EQ(lookup_of({}, 4).guess(8), Tokens());
  EXPECT_EQ(lookup_of({1}, 4).guess(8), Tokens());
  EXPECT_EQ(lookup_of({1, 2, 3, 4, 5, 6}, 4).guess(8), Tokens());
  EXPECT_EQ(lookup_of({1, 2, 3, 1, 2}, 0).guess(8), Tokens());
  EXPECT_EQ(lookup_of({1, 2, 3, 1, 2}, 4).guess(0), Tokens());
  EXPECT_EQ(lookup_of({1, 2, 3, 1, 2}, 4).guess(-1), Tokens());
}

TEST(PromptLookup, GuessesMoreWhileItIsRight) {
  PromptLookup lookup = lookup_of(Tokens(20, 1), 6);
  EXPECT_EQ(lookup.guess(15).size(), 2U);
  lookup.learn(2, 2);
  EXPECT_EQ(lookup.guess(15).size(), 4U);
  lookup.learn(4, 4);
  EXPECT_EQ(lookup.guess(15).size(), 6U);
  EXPECT_EQ(lookup.guess(3).size(), 3U);
  lookup.learn(6, 2);
  EXPECT_EQ(lookup.guess(15).size(), 3U);
}

// How many tokens pass without a guess.
int64_t pause_of(PromptLookup& lookup) {
  for (int64_t pause = 0;; ++pause) {
    if (!lookup.guess(15).empty()) return pause;
  }
}

TEST(PromptLookup, IsSilentForLongerAndLongerWhileItIsWrong) {
  PromptLookup lookup = lookup_of(Tokens(20, 1), 6);
  for (const int64_t pause : {0, 1, 3, 7, 15, 31, 63, 63}) {
    EXPECT_EQ(pause_of(lookup), pause);
    lookup.learn(2, 0);
  }
  EXPECT_EQ(pause_of(lookup), 63);
  lookup.learn(2, 1);
  EXPECT_EQ(pause_of(lookup), 0);
  lookup.learn(2, 0);
  EXPECT_EQ(pause_of(lookup), 1);
}

}  // namespace
}  // namespace weft::generate
