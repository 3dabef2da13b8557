#include "weft/train/checkpoint/folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::train {
namespace {

using weft::testing::error_text;
using weft::testing::TempDir;

void make(const TempDir& dir, const std::string& name) {
  std::filesystem::create_directories(dir.at("checkpoints/" + name));
  dir.write("checkpoints/" + name + "/manifest.json", "{}");
}

TEST(CheckpointFolder, NamesTheStep) {
  EXPECT_EQ(checkpoint_path("run", 100), "run/checkpoints/step-000100");
  EXPECT_EQ(checkpoint_path("run", 12'345'678), "run/checkpoints/step-12345678");
}

TEST(CheckpointFolder, ListsCompleteOnesByTheirNumbers) {
  const TempDir dir;
  EXPECT_EQ(find_latest(dir.path()), std::nullopt);
  for (const char* name : {"step-000900", "step-001000", "step-1234567", "step-000100.tmp-12",
                           "step-2000000.tmp-removed", "step-5000", "step--00001", "step-", "last",
                           "step-99999999999999999999", "step-0x0010", "step-0012345678"}) {
    make(dir, name);
  }
  std::filesystem::create_directories(dir.at("checkpoints/step-3000000"));
  EXPECT_EQ(list_checkpoints(dir.path()), (std::vector<int64_t>{900, 1000, 1'234'567}))
      << "one without manifest.json is none";
  EXPECT_EQ(find_latest(dir.path()), dir.at("checkpoints/step-1234567"));
}

TEST(CheckpointFolder, RemovesTheOldestAndNeverTheNewest) {
  const TempDir dir;
  for (int64_t step = 1; step <= 5; ++step) {
    make(dir, std::filesystem::path(checkpoint_path("", step)).filename().string());
  }
  remove_oldest(dir.path(), 9);
  EXPECT_EQ(list_checkpoints(dir.path()).size(), 5U);
  remove_oldest(dir.path(), 3);
  EXPECT_EQ(list_checkpoints(dir.path()), (std::vector<int64_t>{3, 4, 5}));
  remove_oldest(dir.path(), 0);
  EXPECT_EQ(list_checkpoints(dir.path()), (std::vector<int64_t>{5}));
}

TEST(CheckpointFolder, PreparingRemovesWhatWasNotFinishedAndNothingElse) {
  const TempDir dir;
  prepare_checkpoints(dir.path());
  for (const char* name : {"step-000001", "step-000002.tmp-12", "step-000003.tmp-removed",
                           "notes.tmp-1", "step-notes"}) {
    make(dir, name);
  }
  prepare_checkpoints(dir.path());
  for (const char* name : {"step-000001", "notes.tmp-1", "step-notes"}) {
    EXPECT_TRUE(std::filesystem::exists(dir.at(std::string("checkpoints/") + name))) << name;
  }
  const std::filesystem::directory_iterator entries(dir.at("checkpoints"));
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 3);
}

TEST(CheckpointFolder, SaysWhatTheSystemRefuses) {
  const TempDir dir;
  dir.write("checkpoints", "a file");
  EXPECT_EQ(error_text([&] { prepare_checkpoints(dir.path()); }),
            "IoError: " + dir.at("checkpoints") + ": cannot make it: Not a directory");
}

}  // namespace
}  // namespace weft::train
