#include "weft/core/terminal/printable.h"

#include <gtest/gtest.h>

namespace weft::core {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  const std::string text = "a 'b' \\ ~ \u00e9\u20ac\U0001f642\u00a0 \xed\x9f\xbf\xf4\x8f\xbf\xbf";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable_lines(text + "\n" + text), text + "\n" + text);
}

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("a\nb\r\t\x1b[2J\x7f"), "a\\x0ab\\x0d\\x09\\x1b[2J\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b2J"), "\\xc2\\x9b2J");
  EXPECT_EQ(printable_lines("a\nb\x1b\r\n"), "a\nb\\x1b\\x0d\n");
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(printable("\xff\xc0\x80"), "\\xff\\xc0\\x80");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(printable("\xe2\x82"
                      "a"),
            "\\xe2\\x82"
            "a");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\x9b"), "\\x9b");
}

// What was escaped on its way is not escaped again.
TEST(Printable, ChangesNothingTwice) {
  const std::string once = printable("\x1b\xff\n\\x1b");
  EXPECT_EQ(printable(once), once);
}

TEST(Shortened, KeepsBothEndsOfALongText) {
  const std::string most(kMostShown, 'x');
  EXPECT_EQ(shortened(most), most);
  const std::string text = "begin " + std::string(1'443, 'x') + "ä" + std::string(5'000, 'y') +
                           "ä" + std::string(1'445, 'z') + " end";
  const std::string shown = shortened(text);
  EXPECT_EQ(shown, "begin " + std::string(1'443, 'x') + "… (5002 bytes left out) …" + "ä" +
                       std::string(1'445, 'z') + " end");
  EXPECT_EQ(printable(shown), shown);
}

}  // namespace
}  // namespace weft::core
