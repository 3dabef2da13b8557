#include "weft/train/data/packing.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

#include "tests/train/data/data_files.h"

namespace weft::train {
namespace {

using core::ConfigError;
using text::message_of;
using Ids = std::vector<text::TokenId>;
using Values = std::vector<int64_t>;

struct Sequence {
  explicit Sequence(int64_t length)
      : ids(static_cast<size_t>(length), -7), targets(ids), documents(ids), positions(ids) {}
  Values ids, targets, documents, positions;
};

Sequence sequence_of(const Packer& packer, int64_t index) {
  Sequence out(packer.length());
  packer.fill(index, {out.ids, out.targets, out.documents, out.positions});
  return out;
}

// Ends with 0, which is end-of-text.
std::shared_ptr<const TokenStore> small_store(const TemporaryFolder& folder) {
  return make_store(folder.path("t"), {{1, 2, 0}, {3, 0}, {4, 5, 6, 7, 0}});
}

Packer packer_of(const std::shared_ptr<const TokenStore>& store, int64_t length, Packing packing) {
  return {store, {length, packing}, all_tokens(*store)};
}

TEST(Packing, ThroughDocumentsGoesOnAcrossThem) {
  const TemporaryFolder folder;
  const Packer packer = packer_of(small_store(folder), 4, Packing::kThrough);
  ASSERT_EQ(packer.num_sequences(), 3);
  EXPECT_EQ(sequence_of(packer, 0).ids, (Values{1, 2, 0, 3}));
  EXPECT_EQ(sequence_of(packer, 0).targets, (Values{2, 0, 3, 0}));
  EXPECT_EQ(sequence_of(packer, 1).ids, (Values{0, 4, 5, 6}));
  EXPECT_EQ(sequence_of(packer, 1).targets, (Values{4, 5, 6, 7}));
  EXPECT_EQ(sequence_of(packer, 1).documents, (Values{0, 0, 0, 0}));
  EXPECT_EQ(sequence_of(packer, 1).positions, (Values{0, 1, 2, 3}));
  EXPECT_EQ(sequence_of(packer, 2).ids, (Values{7, 0, 0, 0}));
  EXPECT_EQ(sequence_of(packer, 2).targets, (Values{0, -100, -100, -100}));
}

TEST(Packing, WithinDocumentsSaysWhereTheyAre) {
  const TemporaryFolder folder;
  const Packer packer = packer_of(small_store(folder), 4, Packing::kWithin);
  ASSERT_EQ(packer.num_sequences(), 3);
  EXPECT_EQ(sequence_of(packer, 0).ids, (Values{1, 2, 0, 3}));
  EXPECT_EQ(sequence_of(packer, 0).targets, (Values{2, 0, -100, 0}));
  EXPECT_EQ(sequence_of(packer, 0).documents, (Values{0, 0, 0, 1}));
  EXPECT_EQ(sequence_of(packer, 0).positions, (Values{0, 1, 2, 0}));
  EXPECT_EQ(sequence_of(packer, 1).ids, (Values{0, 4, 5, 6}));
  EXPECT_EQ(sequence_of(packer, 1).targets, (Values{-100, 5, 6, 7}));
  EXPECT_EQ(sequence_of(packer, 1).documents, (Values{0, 1, 1, 1}));
  EXPECT_EQ(sequence_of(packer, 1).positions, (Values{0, 0, 1, 2}));
  EXPECT_EQ(sequence_of(packer, 2).positions, (Values{0, 1, 2, 3}));
}

TEST(Packing, AloneCutsAndPads) {
  const TemporaryFolder folder;
  const Packer packer = packer_of(small_store(folder), 3, Packing::kAlone);
  ASSERT_EQ(packer.num_sequences(), 3);
  EXPECT_EQ(sequence_of(packer, 0).ids, (Values{1, 2, 0}));
  EXPECT_EQ(sequence_of(packer, 0).targets, (Values{2, 0, -100}));
  EXPECT_EQ(sequence_of(packer, 1).ids, (Values{3, 0, 0}));
  EXPECT_EQ(sequence_of(packer, 1).targets, (Values{0, -100, -100}));
  EXPECT_EQ(sequence_of(packer, 2).ids, (Values{4, 5, 6}));
  EXPECT_EQ(sequence_of(packer, 2).targets, (Values{5, 6, 7}));
  EXPECT_EQ(sequence_of(packer, 2).documents, (Values{0, 0, 0}));
  EXPECT_EQ(packer.num_cut(), 1);
  EXPECT_EQ(packer_of(small_store(folder), 4, Packing::kAlone).num_cut(), 0);
}

TEST(Packing, LearnsNoMaskedToken) {
  const TemporaryFolder folder;
  const auto store = make_store(folder.path("t"), {{1, 2, 3, 0}, {4, 5, 0}},
                                {{false, false, true, true}, {true, false, true}});
  const Sequence through = sequence_of(packer_of(store, 6, Packing::kThrough), 0);
  EXPECT_EQ(through.ids, (Values{1, 2, 3, 0, 4, 5}));
  EXPECT_EQ(through.targets, (Values{-100, 3, 0, 4, -100, 0}));
  EXPECT_EQ(sequence_of(packer_of(store, 6, Packing::kWithin), 0).targets,
            (Values{-100, 3, 0, -100, -100, 0}));
}

// Documents whose tokens are all different, so that a token says where it comes from.
struct Corpus {
  std::vector<Ids> documents;
  Ids tokens;
  std::vector<int64_t> document_of;
  std::vector<int64_t> place_in_document;
};

Corpus any_corpus() {
  const auto sizes =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 20)));
  Corpus corpus;
  for (const int size : sizes) {
    corpus.documents.emplace_back();
    for (int i = 0; i < size; ++i) {
      corpus.document_of.push_back(static_cast<int64_t>(corpus.documents.size()) - 1);
      corpus.place_in_document.push_back(i);
      corpus.tokens.push_back(static_cast<text::TokenId>(corpus.tokens.size()));
      corpus.documents.back().push_back(corpus.tokens.back());
    }
  }
  RC_PRE(corpus.tokens.size() >= 2);
  return corpus;
}

TEST(Packing, MakesEachTokenATargetOncePerEpoch) {
  const TemporaryFolder folder;
  rc::check([&] {
    const Corpus corpus = any_corpus();
    const auto store = make_store(folder.path("t"), corpus.documents, {}, 100'000);
    const auto length = *rc::gen::inRange<int64_t>(1, 40);
    const bool is_within = *rc::gen::arbitrary<bool>();
    const Packer packer =
        packer_of(store, length, is_within ? Packing::kWithin : Packing::kThrough);
    std::map<int64_t, int> counts;
    for (int64_t s = 0; s < packer.num_sequences(); ++s) {
      const Sequence sequence = sequence_of(packer, s);
      for (const int64_t target : sequence.targets) {
        if (target != kIgnoredTarget) ++counts[target];
      }
    }
    for (size_t i = 0; i < corpus.tokens.size(); ++i) {
      const bool is_first = is_within ? corpus.place_in_document[i] == 0 : i == 0;
      RC_ASSERT(counts[static_cast<int64_t>(i)] == (is_first ? 0 : 1));
    }
  });
}

TEST(Packing, EqualsWhatTheDocumentsSayTokenByToken) {
  const TemporaryFolder folder;
  rc::check([&] {
    const Corpus corpus = any_corpus();
    const auto store = make_store(folder.path("t"), corpus.documents, {}, 100'000);
    const auto length = *rc::gen::inRange<int64_t>(1, 40);
    const Packer packer = packer_of(store, length, Packing::kWithin);
    for (int64_t s = 0; s < packer.num_sequences(); ++s) {
      const Sequence sequence = sequence_of(packer, s);
      const auto first = static_cast<size_t>(s * length);
      for (size_t i = 0; i < static_cast<size_t>(length) && first + i < corpus.tokens.size(); ++i) {
        const size_t token = first + i;
        RC_ASSERT(sequence.ids[i] == corpus.tokens[token]);
        RC_ASSERT(sequence.documents[i] == corpus.document_of[token] - corpus.document_of[first]);
        const int64_t from_start = corpus.place_in_document[token];
        RC_ASSERT(sequence.positions[i] == std::min(from_start, static_cast<int64_t>(i)));
        const bool has_target = token + 1 < corpus.tokens.size() &&
                                corpus.document_of[token + 1] == corpus.document_of[token];
        RC_ASSERT(sequence.targets[i] == (has_target ? corpus.tokens[token + 1] : kIgnoredTarget));
      }
    }
  });
}

TEST(Packing, OfARangeStaysInIt) {
  const TemporaryFolder folder;
  const auto store = small_store(folder);
  const Packer packer(store, {4, Packing::kWithin}, {1, 5});
  ASSERT_EQ(packer.num_sequences(), 1);
  EXPECT_EQ(sequence_of(packer, 0).ids, (Values{2, 0, 3, 0}));
  EXPECT_EQ(sequence_of(packer, 0).targets, (Values{0, -100, 0, -100}));
  EXPECT_EQ(sequence_of(packer, 0).positions, (Values{0, 1, 0, 1}));
  const Packer alone(store, {9, Packing::kAlone}, {3, 7});
  ASSERT_EQ(alone.num_sequences(), 2);
  EXPECT_EQ(sequence_of(alone, 0).ids, (Values{3, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Packing, RefusesWhatMakesNoSequence) {
  const TemporaryFolder folder;
  const auto store = small_store(folder);
  const auto error = [&](PackOptions options, shard::Range range) {
    return message_of<ConfigError>([&] { Packer(store, options, range); })
        .substr(store->path().size());
  };
  EXPECT_EQ(error({0, Packing::kThrough}, {0, 10}),
            ": sequence length: expected at least 1, got 0");
  EXPECT_EQ(error({4, Packing::kThrough}, {9, 1}),
            ": sequences: expected a range of at least 2 of 10 tokens, got 1 tokens from 9; give "
            "more text");
  EXPECT_EQ(error({4, Packing::kThrough}, {9, 2}),
            ": sequences: expected a range of at least 2 of 10 tokens, got 2 tokens from 9; give "
            "more text");
  EXPECT_EQ(error({4, Packing::kAlone}, {1, 4}),
            ": sequences: expected a range of whole documents, got 4 tokens from 1; split between "
            "documents");
}

TEST(SplitTokens, CutsBetweenDocumentsWhereOneEndsNear) {
  const TemporaryFolder folder;
  const auto store = make_store(folder.path("t"), {Ids(790, 1), Ids(100, 1), Ids(110, 1)});
  using Ranges = std::pair<shard::Range, shard::Range>;
  EXPECT_EQ(split_tokens(*store, 0.2, Packing::kThrough), (Ranges{{0, 790}, {790, 210}}));
  EXPECT_EQ(split_tokens(*store, 0.16, Packing::kThrough), (Ranges{{0, 840}, {840, 160}}));
  EXPECT_EQ(split_tokens(*store, 0.17, Packing::kAlone), (Ranges{{0, 790}, {790, 210}}));
  EXPECT_EQ(split_tokens(*store, 0.0021, Packing::kAlone), (Ranges{{0, 890}, {890, 110}}));
  EXPECT_EQ(split_tokens(*store, 0.9, Packing::kAlone), (Ranges{{0, 790}, {790, 210}}));
}

TEST(SplitTokens, CutsWithinASingleDocument) {
  const TemporaryFolder folder;
  const auto store = make_store(folder.path("t"), {Ids(1000, 1)});
  const auto [train, evaluation] = split_tokens(*store, 0.05, Packing::kWithin);
  EXPECT_EQ(train, (shard::Range{0, 950}));
  EXPECT_EQ(evaluation, (shard::Range{950, 50}));
}

TEST(SplitTokens, RefusesToLeaveASideWithNothing) {
  const TemporaryFolder folder;
  const auto store = make_store(folder.path("t"), {Ids(20, 1)});
  const auto error = [&](double fraction, Packing packing) {
    return message_of<ConfigError>([&] { split_tokens(*store, fraction, packing); })
        .substr(store->path().size());
  };
  EXPECT_EQ(error(1, Packing::kThrough),
            ": evaluation fraction: expected more than 0 and less than 1, got 1");
  EXPECT_EQ(
      error(0.5, Packing::kAlone),
      ": evaluation fraction: expected at least 2 tokens on both sides, got 1 documents of 20 "
      "tokens cut at 0.5; give more text or an evaluation file");
  EXPECT_NE(error(0.01, Packing::kThrough), "");
}

}  // namespace
}  // namespace weft::train
