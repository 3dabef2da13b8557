#include "weft/core/memory/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace weft::core {
namespace {

TEST(Scratch, GrowsAndStays) {
  Scratch<float> scratch;
  EXPECT_EQ(scratch.data(), nullptr);
  float* const large = scratch.make_room(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 64, 0U);
  large[999] = 7;
  EXPECT_EQ(scratch.make_room(10), large);
  EXPECT_EQ(scratch.make_room(1000), large);
  EXPECT_EQ(large[999], 7);
  scratch.make_room(1'000'000)[999'999] = 1;
}

TEST(Scratch, MovesWhatItHolds) {
  Scratch<int8_t> scratch;
  int8_t* const room = scratch.make_room(100);
  const Scratch<int8_t> moved = std::move(scratch);
  EXPECT_EQ(moved.data(), room);
}

}  // namespace
}  // namespace weft::core
