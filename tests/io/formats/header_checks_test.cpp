#include "weft/io/formats/header_checks.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"

namespace weft::io {
namespace {

using testing::error_text;

TEST(TensorBytes, CountsWholeBlocks) {
  EXPECT_EQ(tensor_bytes(Dtype::kF32, {}), 4u);
  EXPECT_EQ(tensor_bytes(Dtype::kF16, {3, 5}), 30u);
  EXPECT_EQ(tensor_bytes(Dtype::kQ4_1, {3, 64}), 120u);
  EXPECT_EQ(tensor_bytes(Dtype::kQ6K, {2, 512}), 840u);
  EXPECT_EQ(tensor_bytes(Dtype::kF64, {0, 1 << 30}), 0u);
  EXPECT_EQ(tensor_bytes(Dtype::kU8, {INT64_MAX}), static_cast<uint64_t>(INT64_MAX));
}

TEST(TensorBytes, IsNothingWhenItDoesNotFit) {
  EXPECT_EQ(tensor_bytes(Dtype::kQ4_1, {3, 48}), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::kQ4_1, {}), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::kU16, {INT64_MAX}), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::kU8, {INT64_MAX, 2}), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::kU8, {int64_t{1} << 32, int64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(tensor_bytes(Dtype::kU8, {int64_t{1} << 62, 4, 0}), std::nullopt);
}

TEST(CheckUniqueNames, NamesTheOneThatStandsTwice) {
  const auto error = [](const std::vector<std::string>& names) {
    std::vector<TensorMeta> tensors;
    for (const std::string& name : names) tensors.emplace_back().name = name;
    return error_text([&] { check_unique_names("F", tensors); });
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error({"b", "a", "c"}), "no error");
  EXPECT_EQ(error({"b", "a", "b"}),
            "FormatError: F: tensor 'b' is listed twice, expected unique names; convert the file "
            "again");
}

TEST(IsUtf8, FollowsTheTableOfWellFormedSequences) {
  for (const char* good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "aéz"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2z", "\xe0\x9f\xbf",
                          "\xe1\x80", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
                          "\xf5\x80\x80\x80", "\xff", "a\xc3", "\xe1\x80z", "\xf1\x80\x80z"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(CheckTensorName, RefusesNulAndWhatIsNotUtf8) {
  EXPECT_EQ(error_text([] { check_tensor_name("F", "a\xff"); }),
            "FormatError: F: tensor 'a\\xff': the name is not UTF-8; convert the file again");
  EXPECT_EQ(error_text([] { check_tensor_name("F", "a"); }), "no error");
  EXPECT_EQ(error_text([] { check_tensor_name("F", std::string("\0", 1)); }),
            "FormatError: F: tensor '\\x00': a NUL byte in the name; convert the file again");
}

}  // namespace
}  // namespace weft::io
