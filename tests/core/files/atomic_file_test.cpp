#include "weft/core/files/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "tests/core/small_disk.h"
#include "tests/core/temp_dir.h"

namespace weft::core {
namespace {

using testing::error_text;
using testing::in_child;
using testing::mount_small_disk;
using testing::replaced;
using testing::TempDir;

// Writes `bytes` in pieces of 1000.
void save_file(const std::string& path, const std::string& bytes) {
  AtomicFile file(path, bytes.size());
  const auto all = std::as_bytes(std::span(bytes));
  for (size_t at = 0; at < all.size(); at += 1000) {
    file.write(all.subspan(at, std::min<size_t>(1000, all.size() - at)));
  }
  file.commit();
}

std::string save_error(const std::string& path, const std::string& bytes) {
  const std::string text = replaced(error_text([&] { save_file(path, bytes); }), path, "FILE");
  return replaced(text, ".tmp-" + std::to_string(::getpid()), ".tmp");
}

void limit_file_size(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

TEST(AtomicFile, WritesAndReplaces) {
  const TempDir dir;
  save_file(dir.at("a"), "first");
  EXPECT_EQ(dir.read("a"), "first");
  save_file(dir.at("a"), std::string(12'345, 'b'));
  EXPECT_EQ(dir.read("a"), std::string(12'345, 'b'));
  write_file_atomically(dir.at("a"), "in one call");
  EXPECT_EQ(dir.read("a"), "in one call");
  EXPECT_EQ(dir.num_files(), 1u);
}

TEST(AtomicFile, TheOldFileStandsUntilCommit) {
  const TempDir dir;
  dir.write("a", "old");
  {
    AtomicFile file(dir.at("a"), 3);
    file.write(std::as_bytes(std::span("new", 3)));
    EXPECT_EQ(dir.read("a"), "old");
    EXPECT_EQ(dir.num_files(), 2u);
  }
  EXPECT_EQ(dir.read("a"), "old");
  EXPECT_EQ(dir.num_files(), 1u);
}

TEST(AtomicFile, ReplacesWhatAKilledProcessLeft) {
  const TempDir dir;
  dir.write("target", "keep");
  std::filesystem::create_symlink("target", dir.at("a.tmp-" + std::to_string(::getpid())));
  save_file(dir.at("a"), "new");
  EXPECT_EQ(dir.read("a"), "new");
  EXPECT_EQ(dir.read("target"), "keep");
}

TEST(AtomicFile, SaysWhyItCannotBegin) {
  const TempDir dir;
  EXPECT_EQ(save_error(dir.at("no/a"), "x"),
            "IoError: FILE: cannot create FILE.tmp: No such file or directory");
  EXPECT_EQ(error_text([] { save_file("", "x"); }),
            "IoError: '': not a path to write; check the path");
}

TEST(AtomicFile, AFolderInTheWayIsAnErrorAndLeavesNothing) {
  const TempDir dir;
  std::filesystem::create_directory(dir.at("a"));
  EXPECT_EQ(save_error(dir.at("a"), "x"),
            "IoError: FILE: not a regular file; write to another path");
  EXPECT_EQ(dir.num_files(), 1u);
}

// A rename would put a file in its place.
TEST(AtomicFile, APipeInTheWayStaysAPipe) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.at("a").c_str(), 0600), 0);
  EXPECT_EQ(save_error(dir.at("a"), "x"),
            "IoError: FILE: not a regular file; write to another path");
  EXPECT_TRUE(std::filesystem::is_fifo(dir.at("a")));
}

TEST(AtomicFile, AFailureAtAnyByteLeavesTheOldFile) {
  const TempDir dir;
  for (const rlim_t limit : {0, 1, 999, 1000, 1500, 4999}) {
    dir.write("a", "old");
    const std::string text = in_child([&] {
      limit_file_size(limit);
      return save_error(dir.at("a"), std::string(5000, 'n'));
    });
    EXPECT_EQ(text, join("IoError: FILE: cannot write at byte ", limit, ": File too large"));
    EXPECT_EQ(dir.read("a"), "old");
    EXPECT_EQ(dir.num_files(), 1u);
  }
}

TEST(AtomicFile, AFullDiskNamesTheBytesAndKeepsTheOldFile) {
  const TempDir dir;
  const std::string text = in_child([&] {
    if (!mount_small_disk(dir.path())) return std::string("not allowed");
    dir.write("a", "old");
    std::string error = save_error(dir.at("a"), std::string(3 << 20, 'n'));
    return error + "|" + dir.read("a") + "|" + std::to_string(dir.num_files());
  });
  if (text == "not allowed") GTEST_SKIP() << "mounting in a user namespace is not allowed here";
  // One page holds the old file, the rest were written.
  EXPECT_EQ(text,
            "IoError: FILE: disk full: need 3145728 bytes, wrote 1044480, 0 free; make room for "
            "2101248 more or choose another folder|old|1");
}

}  // namespace
}  // namespace weft::core
