#include "weft/dist/launch/launch_output.h"

#include <gtest/gtest.h>

namespace weft::dist {
namespace {

std::string prefixed(const std::vector<std::string>& pieces) {
  LinePrefixer lines("[1] ");
  std::string out;
  for (const auto& piece : pieces) lines.feed(piece, out);
  lines.finish(out);
  return out;
}

TEST(LinePrefixer, PutsThePrefixBeforeWholeLines) {
  EXPECT_EQ(prefixed({"a\nb\n"}), "[1] a\n[1] b\n");
  EXPECT_EQ(prefixed({"a", "b\nc", "\n"}), "[1] ab\n[1] c\n");
  EXPECT_EQ(prefixed({"\n\n"}), "[1] \n[1] \n");
}

TEST(LinePrefixer, HoldsALineBackUntilItIsWhole) {
  LinePrefixer lines("> ");
  std::string out;
  lines.feed("not yet", out);
  EXPECT_EQ(out, "");
  lines.feed("\n", out);
  EXPECT_EQ(out, "> not yet\n");
}

TEST(LinePrefixer, CompletesTheLastLine) {
  EXPECT_EQ(prefixed({"a\nlast"}), "[1] a\n[1] last\n");
  EXPECT_EQ(prefixed({}), "");
}

TEST(LinePrefixer, GivesTheSameForEveryCutOfTheInput) {
  const std::string text = "first\n\nthird line\nlast";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(prefixed({text.substr(0, cut), text.substr(cut)}),
              "[1] first\n[1] \n[1] third line\n[1] last\n");
  }
}

TEST(LinePrefixer, CutsALineWithoutEnd) {
  const std::string out = prefixed({std::string(200'000, 'x')});
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 4);
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 200'000);
}

}  // namespace
}  // namespace weft::dist
