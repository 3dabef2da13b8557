#include "weft/text/bpe/spelling_trie.h"

#include <gtest/gtest.h>

namespace weft::text {
namespace {

TEST(SpellingTrie, FindsTheLongestSpellingAtTheStart) {
  SpellingTrie trie;
  trie.add("<a>", 1);
  trie.add("<a>\n", 2);
  trie.add("<abc", 3);
  trie.add("", 4);
  EXPECT_EQ(trie.longest("<a>\nx").id, 2);
  EXPECT_EQ(trie.longest("<a>\nx").size, 4u);
  EXPECT_EQ(trie.longest("<a> x").id, 1);
  EXPECT_EQ(trie.longest("<ab").id, -1);
  EXPECT_EQ(trie.longest("x<a>").id, -1);
  EXPECT_EQ(trie.longest("").id, -1);
}

}  // namespace
}  // namespace weft::text
