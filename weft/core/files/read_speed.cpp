#include "weft/core/files/read_speed.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <latch>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "weft/core/memory/new_memory.h"

namespace weft::core {
namespace {

using Clock = std::chrono::steady_clock;
// Eight numbers, which a line of the cache holds.
using Line = uint64_t __attribute__((vector_size(64)));

uint64_t sum_of(std::span<const std::byte> bytes) {
  constexpr size_t kAhead = 4096;
  Line sums{};
  for (size_t i = 0; i + sizeof(Line) <= bytes.size(); i += sizeof(Line)) {
    __builtin_prefetch(bytes.data() + i + kAhead);
    Line line;
    std::memcpy(&line, bytes.data() + i, sizeof(line));
    sums += line;
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof(Line) / sizeof(sum); ++i) sum += sums[i];
  return sum;
}

// Reads the bytes several times. Returns the most bytes per second.
double best_speed(std::span<const std::byte> bytes) {
  constexpr int kTimes = 10;
  double best = 0;
  for (int i = 0; i < kTimes; ++i) {
    const auto start = Clock::now();
    const uint64_t sum = sum_of(bytes);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    // All bytes are 1: so that reading them can't be left out.
    if (sum != 0) best = std::max(best, static_cast<double>(bytes.size()) / seconds);
  }
  return best;
}

}  // namespace

double read_bytes_per_second(int64_t threads) {
  constexpr uint64_t kOfThread = uint64_t{64} << 20;
  const auto count = static_cast<size_t>(threads);
  const auto memory = new_memory(kOfThread * count);
  std::memset(memory.get(), 1, kOfThread * count);
  // Each thread reads its part time and again, so that one that starts late does no harm.
  std::vector<double> speeds(count);
  std::latch start(threads);
  {
    std::vector<std::jthread> all;
    for (size_t i = 0; i < count; ++i) {
      all.emplace_back([&, i] {
        start.arrive_and_wait();
        speeds[i] = best_speed({memory.get() + i * kOfThread, kOfThread});
      });
    }
  }
  return std::accumulate(speeds.begin(), speeds.end(), 0.0);
}

}  // namespace weft::core
