#include "weft/train/data/store/token_store.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "tests/train/data/data_files.h"
#include "weft/train/data/store/store_format.h"

namespace weft::train {
namespace {

using core::FormatError;
using text::message_of;
using Ids = std::vector<text::TokenId>;

// What a store says, for comparing.
struct Content {
  std::vector<Ids> documents;
  std::vector<std::vector<bool>> masks;
};

Content content_of(const TokenStore& store) {
  Content content;
  for (int64_t i = 0; i < store.num_documents(); ++i) {
    const shard::Range range = store.document(i);
    content.documents.emplace_back();
    content.masks.emplace_back();
    for (int64_t token = range.start; token < range.end(); ++token) {
      EXPECT_EQ(store.document_of(token), i);
      content.documents.back().push_back(static_cast<text::TokenId>(store.token(token)));
      content.masks.back().push_back(store.is_learned(token));
    }
  }
  return content;
}

// Where the numbers at the end begin.
size_t end_of(const std::string& bytes) { return bytes.size() - store_format::kEndBytes; }

uint64_t number(const std::string& bytes, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void set_number(std::string& bytes, size_t offset, uint64_t value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// Changes one of StoreInfo's numbers and the hash with it.
std::string with_info(std::string bytes, size_t index, uint64_t value) {
  set_number(bytes, end_of(bytes) + 8 * index, value);
  store_format::Numbers numbers = {};
  std::memcpy(numbers.data(), bytes.data() + end_of(bytes), sizeof numbers);
  set_number(bytes, end_of(bytes) + sizeof numbers, store_format::hash(numbers));
  return bytes;
}

class TokenStoreErrors : public ::testing::Test {
 protected:
  TokenStoreErrors() {
    make_store(folder_.path("t"), {{1, 2, 3}, {4}, {5, 6}},
               {{true, false, true}, {false}, {true, true}});
    bytes_ = read_bytes(folder_.path("t"));
  }
  // The message for these bytes, from behind the path.
  std::string error(const std::string& bytes) const {
    const std::string path = folder_.write("x", bytes);
    const std::string message = message_of<FormatError>([&] { TokenStore::open(path); });
    return message.empty() ? message : message.substr(path.size());
  }

  TemporaryFolder folder_;
  std::string bytes_;
};

TEST(TokenStore, HoldsWhatWasWritten) {
  const TemporaryFolder folder;
  const auto store = make_store(folder.path("t"), {{1, 2, 3}, {4}, {999, 0}});
  EXPECT_EQ(content_of(*store).documents, (std::vector<Ids>{{1, 2, 3}, {4}, {999, 0}}));
  EXPECT_EQ(store->num_tokens(), 6);
  EXPECT_EQ(store->num_documents(), 3);
  const StoreInfo expected{.vocab_size = 1000,
                           .num_tokens = 6,
                           .num_documents = 3,
                           .has_mask = 0,
                           .tokenizer_hash = 11,
                           .sources_hash = 22,
                           .end_of_text = 0};
  EXPECT_EQ(store->info(), expected);
  EXPECT_TRUE(store->is_learned(0));
  EXPECT_TRUE(TokenStore::is_store(folder.path("t")));
  EXPECT_FALSE(TokenStore::is_store(folder.path("none")));
  EXPECT_FALSE(TokenStore::is_store(folder.write("short", "weft")));
}

TEST(TokenStore, HasTheBytesOfItsDescription) {
  const TemporaryFolder folder;
  make_store(folder.path("t"), {{1, 2, 3}, {260}}, {{true, true, false}, {true}});
  std::string expected = "wefttoks";
  const auto add = [&](uint64_t value) {
    expected.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(1);
  add(0x0104'0003'0002'0001);
  add(0b1011);
  add(0);
  add(3);
  for (const uint64_t value : {1000, 4, 2, 1, 11, 22, 0}) add(value);
  const std::string bytes = read_bytes(folder.path("t"));
  ASSERT_EQ(bytes.size(), expected.size() + 16);
  EXPECT_EQ(bytes.substr(0, expected.size()), expected);
  EXPECT_EQ(bytes.substr(bytes.size() - 8), "wefttoke");
}

TEST(TokenStore, TakesFourBytesPerTokenOnlyForLargeVocabularies) {
  const TemporaryFolder folder;
  const std::vector<Ids> small = {{65535, 0, 7}}, large = {{65536, 0, 7}};
  const auto two = make_store(folder.path("2"), small, {}, 65536);
  const auto four = make_store(folder.path("4"), large, {}, 65537);
  EXPECT_EQ(content_of(*two).documents, small);
  EXPECT_EQ(content_of(*four).documents, large);
  EXPECT_EQ(read_bytes(folder.path("4")).size() - read_bytes(folder.path("2")).size(), 8U);
}

TEST(TokenStore, HoldsAnyDocumentsAndMasks) {
  const TemporaryFolder folder;
  rc::check([&] {
    const auto ids = rc::gen::inRange<text::TokenId>(0, 1000);
    const auto documents = *rc::gen::container<std::vector<Ids>>(rc::gen::container<Ids>(ids));
    std::vector<std::vector<bool>> masks;
    Content expected;
    const bool has_masks = *rc::gen::arbitrary<bool>();
    for (const Ids& document : documents) {
      masks.push_back(
          *rc::gen::container<std::vector<bool>>(document.size(), rc::gen::arbitrary<bool>()));
      if (document.empty()) continue;
      expected.documents.push_back(document);
      expected.masks.push_back(has_masks ? masks.back() : std::vector<bool>(document.size(), true));
    }
    if (!has_masks) masks.clear();
    const auto store = make_store(folder.path("t"), documents, masks);
    const Content content = content_of(*store);
    RC_ASSERT(content.documents == expected.documents);
    RC_ASSERT(content.masks == expected.masks);
  });
}

TEST(TokenStore, IsWrittenInPiecesOfDocuments) {
  const TemporaryFolder folder;
  TokenStoreWriter writer(folder.path("t"), 10, 0);
  writer.add({1, 2}, {});
  writer.add({}, {});
  writer.add({3}, {false});
  writer.end_document();
  writer.end_document();
  writer.add({4}, {});
  EXPECT_EQ(writer.num_tokens(), 4U);
  writer.finish(0, 0, -1);
  const Content content = content_of(*TokenStore::open(folder.path("t")));
  EXPECT_EQ(content.documents, (std::vector<Ids>{{1, 2, 3}, {4}}));
  EXPECT_EQ(content.masks, (std::vector<std::vector<bool>>{{true, true, false}, {true}}));
}

TEST(TokenStore, ShowsTheOldFileUntilTheNewOneIsWhole) {
  const TemporaryFolder folder;
  const auto old = make_store(folder.path("t"), {{1, 2}});
  {
    TokenStoreWriter writer(folder.path("t"), 1000, 0);
    writer.add({3}, {});
    EXPECT_EQ(TokenStore::open(folder.path("t"))->num_tokens(), 2);
  }
  EXPECT_EQ(TokenStore::open(folder.path("t"))->num_tokens(), 2);
  make_store(folder.path("t"), {{5}});
  EXPECT_EQ(TokenStore::open(folder.path("t"))->token(0), 5);
  EXPECT_EQ(old->token(1), 2);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("")), {}), 1);
}

TEST(TokenStore, HasOneIdentityForTheSameTokens) {
  const TemporaryFolder folder;
  const auto first = make_store(folder.path("1"), {{1, 2}});
  EXPECT_EQ(make_store(folder.path("2"), {{1, 2}})->identity(), first->identity());
  EXPECT_NE(make_store(folder.path("3"), {{1, 2, 3}})->identity(), first->identity());
}

TEST(TokenStore, RefusesIdsThatAreNoTokens) {
  const TemporaryFolder folder;
  for (const text::TokenId id : {10, -1}) {
    EXPECT_EQ(message_of<core::ConfigError>([&] {
                TokenStoreWriter writer(folder.path("t"), 10, 0);
                writer.add({1, id}, {});
              }),
              core::join("train.TokenStoreWriter: token 1: expected an id below 10, got ", id,
                         "; use the tokenizer's own ids"));
  }
}

TEST_F(TokenStoreErrors, OfEveryTruncationAreOneLine) {
  for (size_t size = 0; size < bytes_.size(); ++size) {
    const std::string message = error(bytes_.substr(0, size));
    ASSERT_FALSE(message.empty()) << size;
    const char* expected = size < 8    ? ": expected a token store, which begins with wefttoks"
                           : size < 88 ? ": expected a token store of at least 88 bytes, got "
                                       : ": truncated: expected wefttoke at the end";
    EXPECT_EQ(message.find(expected), 0U) << size << message;
  }
  EXPECT_EQ(error(bytes_.substr(0, 100)),
            ": truncated: expected wefttoke at the end, got something else; delete the file, so "
            "that it is made anew");
  EXPECT_EQ(error(""),
            ": expected a token store, which begins with wefttoks, got a file that does not; name "
            "another file");
}

TEST_F(TokenStoreErrors, OfBytesThatAreMissingOrLeftOver) {
  const std::string start = bytes_.substr(0, 16), end = bytes_.substr(end_of(bytes_));
  EXPECT_EQ(error(start + end),
            ": expected a file of 6 tokens of 2 bytes and 3 documents, got one of 88 bytes; delete "
            "the file, so that it is made anew");
  for (size_t gone = 1; gone < bytes_.size() - 88; ++gone) {
    EXPECT_NE(error(start + bytes_.substr(16 + gone)), "") << gone;
    EXPECT_NE(error(start + std::string(gone, '\0') + bytes_.substr(16)), "") << gone;
  }
}

TEST_F(TokenStoreErrors, OfHugeSizes) {
  const uint64_t sizes[] = {0,
                            1000,
                            uint64_t{1} << 32,
                            uint64_t{1} << 61,
                            uint64_t{1} << 62,
                            uint64_t{1} << 63,
                            ~uint64_t{0},
                            ~uint64_t{0} - 7};
  for (const uint64_t size : sizes) {
    for (const size_t index : {1, 2}) {
      EXPECT_NE(error(with_info(bytes_, index, size)), "") << index << ' ' << size;
    }
  }
  EXPECT_EQ(error(with_info(bytes_, 1, ~uint64_t{0})),
            ": expected a file of 18446744073709551615 tokens of 2 bytes and 3 documents, got one "
            "of 136 bytes; delete the file, so that it is made anew");
}

TEST_F(TokenStoreErrors, OfOtherNumbers) {
  std::string version = bytes_;
  set_number(version, 8, 2);
  EXPECT_EQ(error(version),
            ": expected a token store of version 1, got 2; delete the file, so that it is made "
            "anew");
  EXPECT_EQ(error(with_info(bytes_, 0, 0)),
            ": vocabulary: expected 1 to 2147483648 tokens, got 0; delete the file, so that it is "
            "made anew");
  EXPECT_EQ(error(with_info(bytes_, 3, 2)),
            ": mask: expected 0 or 1, got 2; delete the file, so that it is made anew");
  EXPECT_EQ(error(with_info(bytes_, 6, 1000)),
            ": end-of-text: expected -1 to 999, got 1000; delete the file, so that it is made "
            "anew");
  std::string damaged = bytes_;
  damaged[end_of(bytes_)] = static_cast<char>(damaged[end_of(bytes_)] + 1);
  EXPECT_EQ(error(damaged),
            ": damaged: expected that the sizes at the end have the hash behind them; delete the "
            "file, so that it is made anew");
}

TEST_F(TokenStoreErrors, OfDocumentsThatDoNotAscend) {
  const size_t documents = end_of(bytes_) - 3 * 8;
  ASSERT_EQ(number(bytes_, documents + 8), 3U);
  const auto with = [&](size_t index, uint64_t value) {
    std::string bytes = bytes_;
    set_number(bytes, documents + 8 * index, value);
    return error(bytes);
  };
  EXPECT_EQ(with(0, 1),
            ": document 0: expected that it begins at token 0 of 6, got 1; delete the file, so "
            "that it is made anew");
  EXPECT_EQ(with(1, 0),
            ": document 1: expected that it begins at token 1 or behind of 6, got 0; delete the "
            "file, so that it is made anew");
  EXPECT_EQ(with(2, 6),
            ": document 2: expected that it begins at token 4 or behind of 6, got 6; delete the "
            "file, so that it is made anew");
  EXPECT_NE(with(2, 3), "");
  EXPECT_NE(with(1, ~uint64_t{0}), "");
}

TEST_F(TokenStoreErrors, OfIdsBeyondTheVocabularyComeWhenTheyAreRead) {
  const auto store = TokenStore::open(folder_.write("y", with_info(bytes_, 0, 5)));
  EXPECT_EQ(store->token(3), 4);
  EXPECT_EQ(message_of<FormatError>([&] { store->token(4); }),
            store->path() +
                ": token 4: expected an id below 5, got 5; delete the file, so that it "
                "is made anew");
}

TEST_F(TokenStoreErrors, OfAnyChangedBytesAreWefts) {
  std::mt19937_64 random(1);
  size_t num_opened = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = bytes_;
    for (int change = 0; change < 2; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    // Half of them with a hash that fits, so that what lies behind it is reached.
    if (round % 2 == 0) bytes = with_info(bytes, 4, random());
    try {
      content_of(*TokenStore::open(folder_.write("x", bytes)));
      ++num_opened;
    } catch (const FormatError& error) {
      ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    }
  }
  EXPECT_GT(num_opened, 100U);
}

}  // namespace
}  // namespace weft::train
