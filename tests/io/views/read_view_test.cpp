#include "weft/io/views/read_view.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

constexpr uint64_t kKib = 1024;
constexpr uint64_t kMib = 1024 * kKib;

// `size` is a multiple of 8.
std::string seeded_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (size_t at = 0; at + 8 <= size; at += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  return bytes;
}

// A file of one tensor of 24 MiB, whose bytes the test knows.
class Read : public ::testing::Test {
 protected:
  Read() {
    const std::string size = std::to_string(data_.size());
    const std::string header = testing::braces(
        testing::tensor_json("a", "U8", core::join("[", size, "]"), core::join("[0,", size, "]")));
    whole_ = testing::safetensors_bytes(header, data_);
    source_ = TensorFile::open(dir_.write("m.safetensors", whole_));
    start_ = source_->require("a").offset;
  }

  View view(const std::vector<ByteRun>& runs) const {
    std::vector<shard::Range> ranges;
    for (const ByteRun& run : runs) {
      ranges.push_back(
          {static_cast<int64_t>(run.offset - start_), static_cast<int64_t>(run.num_bytes)});
    }
    return View::of(source_->require("a")).ranges(0, ranges);
  }
  // What the runs (offset within the tensor, bytes) hold, read in memory.
  std::string expected(const std::vector<ByteRun>& runs) const {
    std::string bytes;
    for (const ByteRun& run : runs) bytes += whole_.substr(run.offset, run.num_bytes);
    return bytes;
  }
  std::string read(const std::vector<ByteRun>& runs, ReadStats* stats = nullptr) const {
    std::string bytes(expected(runs).size(), '?');
    if (!runs.empty())
      read_view(*source_, view(runs), std::as_writable_bytes(std::span(bytes)), stats);
    return bytes;
  }
  // Stats of reading the runs, whose bytes are checked too.
  ReadStats stats_of(const std::vector<ByteRun>& runs) const {
    ReadStats stats;
    EXPECT_TRUE(read(runs, &stats) == expected(runs));
    return stats;
  }
  ByteRun run(uint64_t offset, uint64_t num_bytes) const { return {0, start_ + offset, num_bytes}; }

  TempDir dir_;
  std::string data_ = seeded_bytes(24 * kMib, 1);
  std::string whole_;
  std::shared_ptr<const TensorFile> source_;
  uint64_t start_ = 0;
};

TEST_F(Read, NeighboursAreOneSpan) {
  const ReadStats stats = stats_of({run(0, 100), run(1100, 100), run(200, 50)});
  EXPECT_EQ(stats.planned_bytes, 250u);
  EXPECT_EQ(stats.num_spans, 1u);
  EXPECT_EQ(stats.read_bytes, 250u);
}

TEST_F(Read, AGapAbove64KibEndsASpan) {
  EXPECT_EQ(stats_of({run(0, 100), run(64 * kKib + 100, 100), run(200, 50)}).num_spans, 1u);
  EXPECT_EQ(stats_of({run(0, 100), run(64 * kKib + 101, 100)}).num_spans, 2u);
}

TEST_F(Read, SpansEndAt8MibOrAfter1024RunsInOrder) {
  const auto runs_every = [&](uint64_t step) {
    std::vector<ByteRun> runs;
    for (uint64_t at = 0; at < 20 * kMib; at += step) runs.push_back(run(at, kKib));
    return runs;
  };
  const ReadStats stats = stats_of(runs_every(32 * kKib));
  EXPECT_EQ(stats.num_spans, 3u);
  EXPECT_EQ(stats.planned_bytes, 640 * kKib);
  EXPECT_EQ(stats.read_bytes, 640 * kKib);
  EXPECT_EQ(stats_of(runs_every(4 * kKib)).num_spans, 5u);
}

TEST_F(Read, ALongRunIsReadByItself) {
  const ReadStats stats = stats_of({run(0, 10), run(20, 12 * kMib), run(12 * kMib + 30, 10)});
  EXPECT_EQ(stats.num_spans, 3u);
  EXPECT_EQ(stats.read_bytes, stats.planned_bytes);
}

TEST_F(Read, OrderOverlapRepetitionAndEmptyRunsAreKept) {
  stats_of({run(500, 10), run(0, 10), run(500, 10), run(505, 10), run(7, 0), run(2, 3)});
  EXPECT_EQ(stats_of({}).num_spans, 0u);
  EXPECT_EQ(stats_of({run(9, 0)}).num_spans, 0u);
}

TEST_F(Read, StatsAddUpOverReads) {
  ReadStats stats;
  read({run(0, 10)}, &stats);
  read({run(5, 20)}, &stats);
  EXPECT_EQ(stats.planned_bytes, 30u);
  EXPECT_EQ(stats.read_bytes, 30u);
  EXPECT_EQ(stats.num_spans, 2u);
}

TEST_F(Read, RandomRunsEqualTheBytesInMemory) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<ByteRun> runs;
    const uint64_t longest = uint64_t{1} << (4 + random() % 18);
    for (uint64_t i = random() % 200; i > 0; --i) {
      const uint64_t size = std::min<uint64_t>(random() % longest, 2 * kMib);
      runs.push_back(run(random() % (data_.size() - size), size));
    }
    stats_of(runs);
  }
}

TEST_F(Read, SeveralThreadsReadAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<ByteRun> runs = {run(i * kMib, 3 * kMib), run(i, 100), run(200 + i, 100)};
      for (int round = 0; round < 10; ++round) right += read(runs) == expected(runs) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
}

TEST_F(Read, AFileThatBecameShorterIsAnError) {
  std::filesystem::resize_file(dir_.at("m.safetensors"), start_ + 50);
  EXPECT_EQ(replaced(error_text([&] { read({run(0, 100)}); }), source_->path(), "FILE"),
            core::join("FormatError: FILE: truncated: need 100 bytes at byte ", start_,
                       ", the file ends at byte ", start_ + 50));
}

TEST_F(Read, AFileThatBecameShorterIsAnErrorAmongShortRunsToo) {
  std::filesystem::resize_file(dir_.at("m.safetensors"), start_ + 50);
  EXPECT_EQ(replaced(error_text([&] {
                       read({run(0, 10), run(20, 10), run(40, 20)});
                     }),
                     source_->path(), "FILE"),
            core::join("FormatError: FILE: truncated: need 60 bytes at byte ", start_,
                       ", the file ends at byte ", start_ + 50));
}

// 24 MiB of rows are read by two threads.
TEST_F(Read, ALargeMatrixsRowsAndColumnsEqualTheBytesInMemory) {
  const std::vector<int64_t> sizes = {6 * 1024, 4 * 1024};
  const View matrix = View::of(source_->require("a")).unflatten(0, sizes);
  for (const View& part : {matrix.narrow(0, 1, 6 * 1024 - 1), matrix.narrow(1, 100, 3000)}) {
    std::string bytes(part.num_bytes(), '?'), expected;
    ReadStats stats;
    read_view(*source_, part, std::as_writable_bytes(std::span(bytes)), &stats);
    part.for_each_run(
        [&](const ByteRun& run) { expected += whole_.substr(run.offset, run.num_bytes); });
    EXPECT_TRUE(bytes == expected);
    EXPECT_EQ(stats.planned_bytes, part.num_bytes());
  }
}

// As the parts of a quantized matrix are: one of many bytes, one of few, one of no rows.
TEST_F(Read, ViewsReadTogetherAreAsTheyAreAlone) {
  const View all = View::of(source_->require("a"));
  const std::vector<int64_t> sizes = {4 * 1024, 6 * 1024};
  const std::vector<View> views = {all.unflatten(0, sizes).narrow(1, 1000, 3000),
                                   all.unflatten(0, sizes).narrow(1, 5000, 16),
                                   all.narrow(0, 3, 5)};
  std::vector<std::string> bytes, expected;
  std::vector<PlacedView> placed;
  ReadStats stats;
  for (const View& view : views) bytes.emplace_back(view.num_bytes(), '?');
  for (size_t i = 0; i < views.size(); ++i) {
    placed.push_back({views[i], std::as_writable_bytes(std::span(bytes[i]))});
    std::string& alone = expected.emplace_back();
    views[i].for_each_run(
        [&](const ByteRun& run) { alone += whole_.substr(run.offset, run.num_bytes); });
  }
  read_views(*source_, placed, &stats);
  for (size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(bytes[i] == expected[i]) << i;
  EXPECT_EQ(stats.planned_bytes, uint64_t{4096} * 3016 + 5);
}

TEST_F(Read, ALargeMatrixOfAFileThatBecameShorterIsAnError) {
  std::filesystem::resize_file(dir_.at("m.safetensors"), start_ + 20 * kMib);
  const std::vector<int64_t> sizes = {6 * 1024, 4 * 1024};
  const View columns = View::of(source_->require("a")).unflatten(0, sizes).narrow(1, 0, 3000);
  std::string bytes(columns.num_bytes(), '?');
  const std::string error =
      error_text([&] { read_view(*source_, columns, std::as_writable_bytes(std::span(bytes))); });
  EXPECT_NE(error.find("truncated: need "), std::string::npos) << error;
}

TEST_F(Read, TheDestinationAndTheFileMustFit) {
  std::string bytes(10, '?');
  const std::span<std::byte> destination = std::as_writable_bytes(std::span(bytes));
  const View nine = View::of(source_->require("a")).narrow(0, 0, 9);
  EXPECT_EQ(error_text([&] { read_view(*source_, nine, destination); }),
            "InternalError: io.read_view: 9 bytes for a destination of 10");
  const auto error = [&](size_t file, uint64_t offset) {
    return error_text([&] { source_->read_at(file, offset, destination); });
  };
  EXPECT_EQ(error(0, whole_.size() - 9),
            core::join("InternalError: io.TensorFile.read_at: 10 bytes at byte ", whole_.size() - 9,
                       " of file 0 are outside of it"));
  EXPECT_EQ(error(0, UINT64_MAX),
            "InternalError: io.TensorFile.read_at: 10 bytes at byte 18446744073709551615 of file 0 "
            "are outside of it");
  EXPECT_EQ(error(1, 0),
            "InternalError: io.TensorFile.read_at: 10 bytes at byte 0 of file 1 are outside of it");
}

}  // namespace
}  // namespace weft::io
