#include "weft/core/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "tests/core/error_text.h"

namespace weft::core {
namespace {

using testing::error_text;

TEST(Error, EachTypeHasItsNameAndExitCode) {
  EXPECT_EQ(InternalError("m").exit_code(), 1);
  EXPECT_EQ(ConfigError("m").exit_code(), 2);
  EXPECT_EQ(ShapeError("m").exit_code(), 2);
  EXPECT_EQ(FormatError("m").exit_code(), 3);
  EXPECT_EQ(CommError("m").exit_code(), 4);
  EXPECT_EQ(IoError("m").exit_code(), 5);
  EXPECT_STREQ(InternalError("m").type(), "InternalError");
  EXPECT_STREQ(ConfigError("m").type(), "ConfigError");
  EXPECT_STREQ(ShapeError("m").type(), "ShapeError");
  EXPECT_STREQ(FormatError("m").type(), "FormatError");
  EXPECT_STREQ(CommError("m").type(), "CommError");
  EXPECT_STREQ(IoError("m").type(), "IoError");
}

TEST(Error, CheckThrowsTheJoinedPartsOnlyWhenFalse) {
  EXPECT_EQ(error_text([] { check<ConfigError>(true, "a", 1); }), "no error");
  EXPECT_EQ(error_text([] { check<ConfigError>(false, "n: ", 1, ", expected ", 2.5); }),
            "ConfigError: n: 1, expected 2.5");
}

TEST(Error, FailErrnoNamesPathActionAndReason) {
  EXPECT_EQ(error_text([] { fail_errno("x.bin", "cannot open", EACCES); }),
            "IoError: x.bin: cannot open: Permission denied");
}

TEST(Error, ListTextPutsNumbersInBrackets) {
  EXPECT_EQ(list_text(std::vector<int>{}), "[]");
  EXPECT_EQ(list_text(std::vector<int64_t>{2, -3}), "[2, -3]");
}

TEST(Error, QuoteKeepsAnyNameOnOneBoundedLine) {
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("a.b 1"), "'a.b 1'");
  EXPECT_EQ(quote(std::string_view("a\nb\0\x1b\xff\x7f", 7)), "'a\\x0ab\\x00\\x1b\\xff\\x7f'");
  EXPECT_EQ(quote(std::string(96, 'n')), "'" + std::string(96, 'n') + "'");
  EXPECT_EQ(quote(std::string(1'000'000, 'n')), "'" + std::string(96, 'n') + "…'");
}

}  // namespace
}  // namespace weft::core
