#include "weft/core/memory/start_code.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace weft::core {
namespace {

// Bytes of the mapping that `address` lies in, which this process holds.
int64_t resident_bytes(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t start = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> start >> dash >> end && dash == '-') {
      is_inside = start <= wanted && wanted < end;
    } else if (is_inside && line.starts_with("Rss:")) {
      return 1024 * std::stoll(line.substr(4));
    }
  }
  return -1;
}

// Data whose initial values are in the file, and data that start-up relocates.
int changed = 41;
const char* const relocated[] = {"one", "two"};

TEST(StartCode, LeavesTheProcessAndComesBack) {
  const auto* const code = reinterpret_cast<const void*>(&release_start_code);
  ++changed;
  const int64_t before = resident_bytes(code);
  release_start_code();
  const int64_t after = resident_bytes(code);
  EXPECT_GE(after, 0);
  EXPECT_LT(after, before);
  EXPECT_EQ(changed, 42);
  EXPECT_STREQ(relocated[1], "two");
}

}  // namespace
}  // namespace weft::core
