#include "weft/core/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::core {
namespace {

TEST(HashStream, IsTheHashOfTheWholeHoweverItIsCut) {
  std::string text;
  for (int i = 0; i < 61; ++i) text += static_cast<char>(i * 37);
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      HashStream stream;
      stream.add(bytes.first(first));
      stream.add(bytes.subspan(first, second - first));
      stream.add(bytes.subspan(second));
      ASSERT_EQ(stream.value(), hash_bytes(bytes)) << first << " " << second;
    }
  }
}

// FNV-1a's own test vectors hold below a word: http://www.isthe.com/chongo/tech/comp/fnv
TEST(HashBytes, IsFnv1aBelowAWord) {
  EXPECT_EQ(hash_bytes({}), 0xcbf29ce484222325);
  EXPECT_EQ(hash_bytes(std::as_bytes(std::span("a", 1))), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(hash_bytes(std::as_bytes(std::span("foobar", 6))), 0x85944171f73967e8);
}

}  // namespace
}  // namespace weft::core
