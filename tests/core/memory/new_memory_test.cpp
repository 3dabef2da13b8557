#include "weft/core/memory/new_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "tests/core/error_text.h"
#include "weft/core/memory/kept_memory.h"

namespace weft::core {
namespace {

using testing::error_text;

constexpr uint64_t kMib = uint64_t{1} << 20;

TEST(NewMemory, NeighboursAreAlignedAndApart) {
  const std::vector<uint64_t> sizes = {1, 63, 64, 65, 4096, 3 * kMib + 5, 100 * kMib, 0, 7};
  std::vector<std::shared_ptr<std::byte>> all;
  for (size_t i = 0; i < sizes.size(); ++i) {
    all.push_back(new_memory(sizes[i]));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all[i].get()) % 64, 0u) << sizes[i];
    std::memset(all[i].get(), static_cast<int>(i + 1), sizes[i]);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (uint64_t at = 0; at < sizes[i]; ++at) {
      ASSERT_EQ(all[i].get()[at], static_cast<std::byte>(i + 1)) << i << " at " << at;
    }
  }
}

// Which of the pages from `start` have memory, counted.
uint64_t pages_in_memory(std::byte* start, uint64_t size) {
  std::vector<unsigned char> is_there(size / 4096);
  EXPECT_EQ(::mincore(start, size, is_there.data()), 0);
  uint64_t count = 0;
  for (const unsigned char each : is_there) count += each & 1;
  return count;
}

TEST(NewMemory, GoesBackToTheSystemThoughANeighbourStays) {
  std::shared_ptr<std::byte> first = new_memory(8 * kMib);
  const std::shared_ptr<std::byte> neighbour = new_memory(1000);
  std::memset(first.get(), 1, 8 * kMib);
  std::memset(neighbour.get(), 2, 1000);
  std::byte* inner = first.get() + 2 * kMib - reinterpret_cast<uintptr_t>(first.get()) % (2 * kMib);
  ASSERT_EQ(pages_in_memory(inner, 6 * kMib), 6 * kMib / 4096);
  first.reset();
  EXPECT_EQ(pages_in_memory(inner, 6 * kMib), 0u);
  EXPECT_EQ(neighbour.get()[999], std::byte{2});
}

TEST(NewMemory, WhatWasGivenBackIsTakenAgain) {
  // Too large for what others have left: the three lie side by side in a region of their own.
  std::shared_ptr<std::byte> first = new_memory(20 * kMib), second = new_memory(20 * kMib);
  const std::shared_ptr<std::byte> third = new_memory(20 * kMib);
  std::memset(third.get(), 3, 20 * kMib);
  const std::byte* const place = std::min(first.get(), second.get());
  first.reset();
  second.reset();
  const std::shared_ptr<std::byte> both = new_memory(40 * kMib);
  EXPECT_EQ(both.get(), place);
  std::memset(both.get(), 4, 40 * kMib);
  EXPECT_EQ(third.get()[0], std::byte{3});
  EXPECT_EQ(third.get()[20 * kMib - 1], std::byte{3});
}

TEST(KeptMemory, IsTakenAgainAsItIsAndGoesBackAtTheEnd) {
  std::byte* place = nullptr;
  {
    const KeptMemory outer;
    {
      const KeptMemory inner;
      std::shared_ptr<std::byte> first = new_memory(70 * kMib);
      place = first.get();
      std::memset(place, 5, 70 * kMib);
    }
    EXPECT_EQ(pages_in_memory(place, 70 * kMib), 70 * kMib / 4096);
    const std::shared_ptr<std::byte> again = new_memory(69 * kMib);
    EXPECT_EQ(again.get(), place);
    EXPECT_EQ(again.get()[69 * kMib - 1], std::byte{5});
  }
  // The region is no longer there.
  std::vector<unsigned char> is_there(1);
  EXPECT_EQ(::mincore(place, 4096, is_there.data()), -1);
}

TEST(KeptMemory, GoesBackBesideWhatStays) {
  std::shared_ptr<std::byte> stays;
  std::byte* inner = nullptr;
  {
    const KeptMemory kept;
    std::shared_ptr<std::byte> first = new_memory(8 * kMib);
    stays = new_memory(1000);
    std::memset(first.get(), 1, 8 * kMib);
    inner = first.get() + 2 * kMib - reinterpret_cast<uintptr_t>(first.get()) % (2 * kMib);
    first.reset();
    EXPECT_EQ(pages_in_memory(inner, 6 * kMib), 6 * kMib / 4096);
  }
  EXPECT_EQ(pages_in_memory(inner, 6 * kMib), 0u);
}

TEST(NewMemory, MoreThanThereIsIsAnError) {
  EXPECT_EQ(
      error_text([] { new_memory(std::numeric_limits<int64_t>::max() / 2); }),
      "IoError: core.new_memory: no memory for 4611686018427387904 bytes; use more ranks, or a "
      "machine with more memory");
}

}  // namespace
}  // namespace weft::core
