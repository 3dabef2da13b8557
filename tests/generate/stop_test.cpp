#include "weft/generate/stop.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"

namespace weft::generate {
namespace {

using testing::error_text;

// What a finder gives out of `pieces`, a '|' between what each of them brings and before the end.
std::string given_out(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopFinder finder(std::move(stops));
  std::string out;
  for (const std::string& piece : pieces) out += finder.push(piece) + "|";
  return out + finder.finish() + (finder.is_found() ? "#" : "");
}

TEST(StopFinder, WithoutStopsHoldsNothingBack) {
  EXPECT_EQ(given_out({}, {"a", "", "bc"}), "a||bc|");
}

TEST(StopFinder, EndsBeforeTheStopInOnePiece) {
  EXPECT_EQ(given_out({"END"}, {"one END two"}), "one |#");
}

TEST(StopFinder, EndsBeforeAStopThatSpansPieces) {
  EXPECT_EQ(given_out({"END"}, {"one E", "N", "D two", "three"}), "one ||||#");
}

TEST(StopFinder, GivesOutWhatOnlyBeganLikeAStop) {
  EXPECT_EQ(given_out({"END"}, {"one EN", "x"}), "one |ENx|");
  EXPECT_EQ(given_out({"END"}, {"one EN", "EN", "D"}), "one |EN||#");
  EXPECT_EQ(given_out({"aab"}, {"aa", "ab"}), "|a|#");
}

TEST(StopFinder, GivesOutAtTheEndWhatItHeldBack) {
  EXPECT_EQ(given_out({"END"}, {"one EN"}), "one |EN");
}

TEST(StopFinder, TakesTheStopThatEndsFirst) {
  EXPECT_EQ(given_out({"three", "two"}, {"one two three"}), "one |#");
  EXPECT_EQ(given_out({"long stop", "stop"}, {"a long", " stop"}), "a ||#");
}

TEST(StopFinder, FindsCharactersOfSeveralBytes) {
  EXPECT_EQ(given_out({"\xe2\x82\xac"}, {"5 \xe2\x82\xac", "6"}), "5 ||#");
  EXPECT_EQ(given_out({"\xe2\x82\xac"}, {"5 \xe2\x82\xad"}), "5 \xe2\x82\xad|");
}

TEST(StopFinder, RefusesAnEmptyStop) {
  EXPECT_EQ(error_text([] {
              StopFinder finder({"a", ""});
            }),
            "ConfigError: generate: stop: expected a text, got an empty one");
}

}  // namespace
}  // namespace weft::generate
