#include "weft/core/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace weft::core {
namespace {

void sleep_for_ms(int64_t count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

TEST(Profile, CountsPartsAndKeepsInnerOnesApart) {
  set_profiling(true);
  for (int i = 0; i < 3; ++i) {
    const Profiled outer("outer");
    const Profiled inner("inner");
    sleep_for_ms(20);
  }
  set_profiling(false);
  { const Profiled after("after"); }
  const auto parts = profiled_parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "inner");
  EXPECT_EQ(parts[1].name, "outer");
  EXPECT_EQ(parts[0].runs, 3);
  EXPECT_EQ(parts[1].runs, 3);
  // A sleep is never shorter than asked for.
  EXPECT_GE(parts[0].seconds, 0.06);
  EXPECT_LT(parts[1].seconds, parts[0].seconds);
}

TEST(Profile, BeginsAnewAndIsOneThreadsOwn) {
  set_profiling(true);
  std::thread([] { const Profiled other("other"); }).join();
  EXPECT_TRUE(profiled_parts().empty());
  { const Profiled own("own"); }
  EXPECT_EQ(profiled_parts().size(), 1u);
  set_profiling(true);
  EXPECT_TRUE(profiled_parts().empty());
  set_profiling(false);
}

}  // namespace
}  // namespace weft::core
