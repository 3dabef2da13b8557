#include "weft/core/files/file_lock.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::core {
namespace {

using testing::error_text;
using testing::TempDir;

TEST(FileLock, HasTheHoldersLine) {
  const TempDir dir;
  { const FileLock lock(dir.at("lock"), "process 123456 on host a"); }
  const FileLock lock(dir.at("lock"), "process 1 on host b");
  EXPECT_EQ(dir.read("lock"), "process 1 on host b\n");
}

TEST(FileLock, LeavesAFileOfSomethingElseAlone) {
  const TempDir dir;
  const std::string text(1000, 'x');
  const std::string path = dir.write("lock", text);
  EXPECT_EQ(error_text([&] { FileLock(path, "me"); }),
            "IoError: " + path +
                ": expected the lock of a run, got a file of 1000 bytes; use another folder");
  EXPECT_EQ(dir.read("lock"), text);
}

}  // namespace
}  // namespace weft::core
