#include "weft/core/read_speed.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "weft/core/new_memory.h"

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

// Reads all bytes, each thread a part. Returns the seconds it took.
double read_once(std::span<const std::byte> bytes, size_t threads) {
  const size_t part = bytes.size() / threads;
  std::vector<uint64_t> sums(threads);
  const auto start = Clock::now();
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) {
      others.emplace_back([&, i] { sums[i] = sum_of(bytes.subspan(i * part, part)); });
    }
    sums[0] = sum_of(bytes.first(part));
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  // All bytes are 1: so that reading them can't be left out.
  return sums[0] == 0 ? 0 : seconds;
}

}  // namespace

double read_bytes_per_second(int64_t threads) {
  constexpr uint64_t kLeast = uint64_t{128} << 20, kOfThread = uint64_t{32} << 20;
  constexpr int kTimes = 10;
  const uint64_t size = std::max(kLeast, kOfThread * static_cast<uint64_t>(threads));
  const auto memory = new_memory(size);
  std::memset(memory.get(), 1, size);
  double best = 1e9;
  for (int i = 0; i < kTimes; ++i) {
    best = std::min(best, read_once({memory.get(), size}, static_cast<size_t>(threads)));
  }
  return static_cast<double>(size) / best;
}

}  // namespace weft::core
