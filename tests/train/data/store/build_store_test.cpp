#include "weft/train/data/store/build_store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/train/data/data_files.h"
#include "weft/core/log.h"

namespace weft::train {
namespace {

using core::FormatError;
using text::message_of;
using Ids = std::vector<text::TokenId>;

const DocumentTokenizer& tokenizer() {
  static const DocumentTokenizer made(smollm2_tokenizer(), smollm2_template());
  return made;
}

Ids ids_of(const TokenStore& store, int64_t document) {
  Ids ids;
  const shard::Range range = store.document(document);
  for (int64_t i = range.start; i < range.end(); ++i) {
    ids.push_back(static_cast<text::TokenId>(store.token(i)));
  }
  return ids;
}

std::string decode(const TokenStore& store, int64_t document) {
  return smollm2_tokenizer().decode(ids_of(store, document));
}

// A text and lines of all kinds, and where their tokens go.
class BuildStore : public ::testing::Test {
 protected:
  BuildStore() {
    options_.sources = {
        folder_.write("a.txt", "First one.\n\nAnother\none.\n"),
        folder_.write("b.jsonl",
                      "{\"text\":\"A line.\"}\n{\"text\":\"\"}\n"
                      "{\"prompt\":\"2+2=\",\"completion\":\"4\"}\n"
                      "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
                      "\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yes?\"}]}\n")};
    options_.text_files = TextFiles::kBlankLines;
    options_.path = folder_.path("tokens");
  }

  TemporaryFolder folder_;
  StoreOptions options_;
};

TEST_F(BuildStore, HoldsAllDocumentsInOrder) {
  const auto store = open_or_build(options_, tokenizer());
  ASSERT_EQ(store->num_documents(), 5);
  EXPECT_EQ(decode(*store, 0), "First one.<|endoftext|>");
  EXPECT_EQ(decode(*store, 1), "Another\none.<|endoftext|>");
  EXPECT_EQ(decode(*store, 2), "A line.<|endoftext|>");
  EXPECT_EQ(decode(*store, 3), "2+2=4<|endoftext|>");
  EXPECT_EQ(decode(*store, 4),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\nYes?<|im_end|>\n");
  EXPECT_EQ(store->info().has_mask, 1U);
  std::string learned;
  for (int64_t i = store->document(3).start; i < store->num_tokens(); ++i) {
    if (!store->is_learned(i)) continue;
    learned += smollm2_tokenizer().bytes(static_cast<text::TokenId>(store->token(i)));
  }
  EXPECT_EQ(learned, "4<|endoftext|>Yes?<|im_end|>");
  EXPECT_EQ(store->vocab_size(), 49152);
}

TEST_F(BuildStore, OpensAFreshStoreAsItIs) {
  EXPECT_FALSE(is_fresh(options_, tokenizer()));
  open_or_build(options_, tokenizer());
  EXPECT_TRUE(is_fresh(options_, tokenizer()));
  const auto before = std::filesystem::last_write_time(options_.path);
  int calls = 0;
  options_.progress = [&](uint64_t, uint64_t) { ++calls; };
  open_or_build(options_, tokenizer());
  EXPECT_EQ(std::filesystem::last_write_time(options_.path), before);
  EXPECT_EQ(calls, 0);
}

TEST_F(BuildStore, MakesAStaleStoreAnew) {
  open_or_build(options_, tokenizer());
  folder_.write("a.txt", "First two.\n\nAnother\none.\n");
  EXPECT_FALSE(is_fresh(options_, tokenizer()));
  EXPECT_EQ(decode(*open_or_build(options_, tokenizer()), 0), "First two.<|endoftext|>");

  const DocumentTokenizer other(smollm2_tokenizer(), named_template("zephyr"));
  EXPECT_FALSE(is_fresh(options_, other));
  options_.text_files = TextFiles::kLines;
  EXPECT_FALSE(is_fresh(options_, tokenizer()));
  std::swap(options_.sources[0], options_.sources[1]);
  EXPECT_FALSE(is_fresh(options_, tokenizer()));
}

TEST_F(BuildStore, MakesADamagedStoreAnew) {
  const core::LogLevel level = core::log_level();
  core::set_log_level(core::LogLevel::kOff);
  const auto whole = open_or_build(options_, tokenizer());
  folder_.write("tokens.cut", read_bytes(options_.path).substr(0, 100));
  std::filesystem::rename(folder_.path("tokens.cut"), options_.path);
  EXPECT_FALSE(is_fresh(options_, tokenizer()));
  EXPECT_EQ(open_or_build(options_, tokenizer())->identity(), whole->identity());
  EXPECT_TRUE(is_fresh(options_, tokenizer()));
  core::set_log_level(level);
}

TEST_F(BuildStore, LeavesOtherFilesAlone) {
  options_.path = folder_.write("notes.txt", "important");
  EXPECT_EQ(message_of<FormatError>([&] { open_or_build(options_, tokenizer()); }),
            options_.path +
                ": expected a token store or no file, got another kind of file; name "
                "another path for the tokens");
  EXPECT_EQ(read_bytes(options_.path), "important");
}

TEST_F(BuildStore, LeavesNothingBehindABadLine) {
  folder_.write("b.jsonl", "{\"text\":\"A line.\"}\n{\"txt\":\"B\"}\n");
  EXPECT_EQ(
      message_of<FormatError>([&] { open_or_build(options_, tokenizer()); }),
      options_.sources[1] +
          ":2: expected one of \"text\", \"messages\", or \"prompt\" with \"completion\", got "
          "the keys 'txt'; rename the key that holds the text");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path("")), {}), 2);
}

TEST_F(BuildStore, RefusesSourcesWithoutText) {
  options_.sources = {folder_.write("e.txt", "\n\n"), folder_.write("e.jsonl", "{\"text\":\"\"}")};
  EXPECT_EQ(message_of<FormatError>([&] { open_or_build(options_, tokenizer()); }),
            options_.sources[0] + ": expected documents, got files without text; name other files");
}

TEST_F(BuildStore, ReportsItsProgress) {
  std::string lines;
  for (int i = 0; i < 30'000; ++i)
    lines += core::join("Line number ", i, " of a larger file, which is read a block at a time.\n");
  options_.sources = {folder_.write("large.txt", lines)};
  std::vector<uint64_t> done;
  options_.progress = [&](uint64_t now, uint64_t total) {
    EXPECT_EQ(total, lines.size());
    done.push_back(now);
  };
  open_or_build(options_, tokenizer());
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  ASSERT_GE(done.size(), 2U);
  EXPECT_EQ(done.back(), lines.size());
}

}  // namespace
}  // namespace weft::train
