#include "weft/train/data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/text/goldens.h"
#include "weft/core/error.h"

namespace weft::train {
namespace {

std::vector<int64_t> images(int64_t size, uint64_t key) {
  const Permutation permutation(size, key);
  std::vector<int64_t> values(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) values[static_cast<size_t>(i)] = permutation(i);
  return values;
}

TEST(Permutation, IsABijectionForEverySize) {
  for (int64_t size = 1; size <= 2000; ++size) {
    std::vector<int64_t> values = images(size, 7 + static_cast<uint64_t>(size));
    std::sort(values.begin(), values.end());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i) << size;
  }
}

TEST(Permutation, StaysWithinLargeSizesAndNeverMeetsAnElementTwice) {
  for (const int64_t size :
       {int64_t{1'000'000'000'000}, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    const Permutation permutation(size, 3);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 2000; ++i) {
      const int64_t value = permutation(i % 2 == 0 ? i : size - i);
      ASSERT_GE(value, 0);
      ASSERT_LT(value, size);
      ASSERT_TRUE(seen.insert(value).second);
    }
    // Neighbours are spread over the whole.
    EXPECT_LT(*seen.begin(), size / 100);
    EXPECT_GT(*seen.rbegin(), size - size / 100);
  }
}

TEST(Permutation, EveryOrderOfAFewComesUp) {
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kKeys = 24 * 100;
  for (uint64_t key = 0; key < kKeys; ++key) ++counts[images(4, key)];
  EXPECT_EQ(counts.size(), 24U);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 100, 60);
}

TEST(Permutation, PutsEachElementAnywhereAlike) {
  constexpr int64_t kSize = 10;
  constexpr int kKeys = 10'000;
  std::vector<int> counts(kSize);
  for (uint64_t key = 0; key < kKeys; ++key) {
    ++counts[static_cast<size_t>(Permutation(kSize, key * 977)(0))];
  }
  for (const int count : counts) EXPECT_NEAR(count, kKeys / kSize, 6 * std::sqrt(kKeys / kSize));
}

TEST(Permutation, RefusesSizesThatItCanNotWalk) {
  EXPECT_EQ(text::message_of<core::ConfigError>([] { Permutation(0, 1); }),
            "train.Permutation: expected 1 to 4611686018427387904 numbers, got 0");
}

TEST(SampleOrder, HasEachSequenceOncePerEpochAndAnotherOrderInEach) {
  constexpr int64_t kSize = 101;
  const SampleOrder order(kSize, 42);
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < kSize; ++i) values.push_back(order[epoch * kSize + i]);
    orders.insert(values);
    std::sort(values.begin(), values.end());
    for (int64_t i = 0; i < kSize; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 5U);
}

TEST(SampleOrder, DependsOnTheSeedAlone) {
  const auto first = [](uint64_t seed) {
    const SampleOrder order(1000, seed);
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 20; ++i) values.push_back(order[i]);
    return values;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
}

TEST(SampleOrder, WithoutShuffleCountsUpAndBeginsAgain) {
  const SampleOrder order(3, 0, false);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < 8; ++i) values.push_back(order[i]);
  EXPECT_EQ(values, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(SampleOrder, StaysAsItIsForRunsThatGoOn) {
  // Computed from the definition in Python: a run that resumes with a later version of weft must
  // go on in the same order.
  const SampleOrder order(10, 1234);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < 20; ++i) values.push_back(order[i]);
  EXPECT_EQ(values,
            (std::vector<int64_t>{1, 7, 5, 9, 6, 8, 4, 3, 0, 2, 5, 0, 2, 6, 1, 7, 4, 9, 8, 3}));
  EXPECT_EQ(SampleOrder(1'000'000'000'000, 5)[123'456'789'012'345], 512915067960);
}

}  // namespace
}  // namespace weft::train
