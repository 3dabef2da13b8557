#include "weft/train/data/batches.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/train/data/data_files.h"

namespace weft::train {
namespace {

using Ids = std::vector<text::TokenId>;

constexpr int64_t kLength = 4;
constexpr uint64_t kSeed = 9;

class BatchesOfASmallCorpus : public ::testing::Test {
 protected:
  BatchesOfASmallCorpus() {
    // 23 sequences of 4, so that batches never end with an epoch.
    std::vector<Ids> documents;
    text::TokenId next = 0;
    for (const int size : {1, 30, 2, 40, 19, 1}) {
      documents.emplace_back();
      for (int i = 0; i < size; ++i) documents.back().push_back(next++);
    }
    store_ = make_store(folder_.path("t"), documents);
  }
  Batches batches() const {
    return {store_, {kLength, Packing::kThrough}, all_tokens(*store_), kSeed};
  }
  static Rows fill(const Batches& batches, int64_t first, int64_t count) {
    Rows rows;
    batches.fill(first, count, rows);
    return rows;
  }

  TemporaryFolder folder_;
  std::shared_ptr<const TokenStore> store_;
};

TEST_F(BatchesOfASmallCorpus, HaveTheSequencesOfTheOrder) {
  const Batches all = batches();
  ASSERT_EQ(all.num_sequences(), 23);
  const SampleOrder order(23, kSeed);
  const Rows rows = fill(all, 20, 7);
  ASSERT_EQ(rows.ids.size(), 28U);
  for (int64_t i = 0; i < 7; ++i) {
    for (int64_t j = 0; j < kLength; ++j) {
      // Tokens are numbered as they stand in the store.
      const auto at = static_cast<size_t>(i * kLength + j);
      const int64_t token = order[20 + i] * kLength + j;
      EXPECT_EQ(rows.ids[at], token < 93 ? token : 0);
      EXPECT_EQ(rows.targets[at], token + 1 < 93 ? token + 1 : kIgnoredTarget);
      EXPECT_EQ(rows.positions[at], j);
      EXPECT_EQ(rows.documents[at], 0);
    }
  }
}

TEST_F(BatchesOfASmallCorpus, AreTheSameOnEveryMesh) {
  constexpr int64_t kBatch = 12;
  for (int64_t step = 0; step < 6; ++step) {
    const Rows whole = fill(batches(), step * kBatch, kBatch);
    for (const int64_t num_parts : {1, 2, 3, 4, 6}) {
      std::vector<int64_t> ids;
      int64_t num_targets = 0;
      for (int64_t part = 0; part < num_parts; ++part) {
        const int64_t rows_each = kBatch / num_parts;
        const Rows rows = fill(batches(), step * kBatch + part * rows_each, rows_each);
        ids.insert(ids.end(), rows.ids.begin(), rows.ids.end());
        num_targets += rows.num_targets;
      }
      EXPECT_EQ(ids, whole.ids);
      EXPECT_EQ(num_targets, whole.num_targets);
    }
  }
}

TEST_F(BatchesOfASmallCorpus, GoOnAfterAResumeWithoutRepeatingOrSkipping) {
  // Two epochs in steps of 5, stopped after 13 samples, then in steps of 3.
  std::map<int64_t, int> counts;
  int64_t consumed = 0;
  const auto take = [&](int64_t count) {
    const Rows rows = fill(batches(), consumed, count);
    for (int64_t i = 0; i < count; ++i) ++counts[rows.ids[static_cast<size_t>(i * kLength)]];
    consumed += count;
  };
  for (const int64_t count : {5, 5, 3}) take(count);
  while (consumed < 46) take(3);
  ASSERT_EQ(consumed, 46);
  EXPECT_EQ(counts.size(), 23U);
  for (const auto& [first, count] : counts) EXPECT_EQ(count, 2) << first;
}

TEST_F(BatchesOfASmallCorpus, OfAnEpochHaveEachTargetOnce) {
  const Rows rows = fill(batches(), 23, 23);
  std::multiset<int64_t> targets(rows.targets.begin(), rows.targets.end());
  for (int64_t token = 1; token < 93; ++token) EXPECT_EQ(targets.count(token), 1U);
  EXPECT_EQ(rows.num_targets, 92);
}

TEST_F(BatchesOfASmallCorpus, ForEvaluationAreInTheStoresOrder) {
  const auto [train, evaluation] = split_tokens(*store_, 0.3, Packing::kThrough);
  const Batches held_out(store_, {kLength, Packing::kThrough}, evaluation);
  const Rows rows = fill(held_out, 0, held_out.num_sequences());
  EXPECT_EQ(rows.ids.front(), train.end());
  EXPECT_TRUE(std::is_sorted(rows.ids.begin(), rows.ids.begin() + evaluation.length));
  EXPECT_EQ(rows.num_targets, evaluation.length - 1);
}

TEST_F(BatchesOfASmallCorpus, MayBeEmptyButNotNegative) {
  EXPECT_EQ(fill(batches(), 3, 0).ids.size(), 0U);
  EXPECT_EQ(text::message_of<core::ConfigError>([&] { fill(batches(), -1, 2); }),
            "train.Batches: expected samples from 0, got 2 from -1");
}

}  // namespace
}  // namespace weft::train
