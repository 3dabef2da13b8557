#include "weft/core/files/read_speed.h"

#include <gtest/gtest.h>

namespace weft::core {
namespace {

// No machine reads less than a tape or more than a thousand channels of memory.
TEST(ReadSpeed, IsOneThatAMachineCanHave) {
  for (const int64_t threads : {1, 2}) {
    const double speed = read_bytes_per_second(threads);
    EXPECT_GT(speed, 1e7) << threads;
    EXPECT_LT(speed, 1e14) << threads;
  }
}

}  // namespace
}  // namespace weft::core
