#include "weft/text/bpe/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace weft::text {
namespace {

using Ids = std::vector<TokenId>;
using Merges = std::map<std::pair<TokenId, TokenId>, MergeTable::Merge>;

// The definition, in quadratic time: again and again the best pair, the leftmost of equals.
Ids merge_plainly(Ids ids, const Merges& merges) {
  for (;;) {
    const MergeTable::Merge* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = merges.find({ids[i], ids[i + 1]});
      if (it == merges.end() || (best != nullptr && it->second.rank >= best->rank)) continue;
      best = &it->second;
      place = i;
    }
    if (best == nullptr) return ids;
    ids[place] = best->result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST(Bpe, EqualsThePlainDefinitionOnRandomMerges) {
  std::mt19937 random(21);
  for (int round = 0; round < 300; ++round) {
    // Tokens 0 to 3 are given; every merge makes a new token of two that exist.
    Merges merges;
    MergeTable table(40);
    for (TokenId id = 4; id < 44; ++id) {
      const auto left = static_cast<TokenId>(random() % id);
      const auto right = static_cast<TokenId>(random() % id);
      const MergeTable::Merge merge{static_cast<int32_t>(random() % 1000 * 64 + id), id};
      merges[{left, right}] = merge;
      table.set(left, right, merge);
    }
    BpeMerger merger(table);
    for (int text = 0; text < 10; ++text) {
      Ids ids;
      for (size_t i = random() % 60; i > 0; --i) ids.push_back(static_cast<TokenId>(random() % 4));
      Ids merged;
      merger.merge(ids, merged);
      EXPECT_EQ(merged, merge_plainly(ids, merges));
    }
  }
}

TEST(MergeTable, FindsWhatWasSetAndTheLastOfEqualPairs) {
  MergeTable table(1000);
  for (int32_t i = 0; i < 1000; ++i) table.set(i, i * 7, {i, i + 1});
  table.set(5, 35, {77, 78});
  EXPECT_EQ(table.find(5, 35).rank, 77);
  EXPECT_EQ(table.find(999, 6993).result, 1000);
  EXPECT_EQ(table.find(35, 5).rank, -1);
}

}  // namespace
}  // namespace weft::text
