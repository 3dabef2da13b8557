#include "weft/nn/logits/largest.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

namespace weft::nn {
namespace {

// The largest number of a run; NaN if one is NaN or plus infinity. In lanes of their own, which GCC
// makes vectors of only where it is told of them.
float largest_of_run(std::span<const float> numbers) {
  using Lanes __attribute__((vector_size(16))) = float;
  constexpr size_t kLanes = sizeof(Lanes) / sizeof(float);
  constexpr float kLeast = std::numeric_limits<float>::lowest();
  Lanes most = Lanes{} - std::numeric_limits<float>::infinity(), broken = {};
  const auto take = [&](const Lanes& some) {
    most = some > most ? some : most;
    // 0 for all numbers and minus infinity, NaN for NaN and infinity.
    broken += 0 * (some < kLeast ? Lanes{} + kLeast : some);
  };
  Lanes some;
  size_t i = 0;
  for (; i + kLanes <= numbers.size(); i += kLanes) {
    std::memcpy(&some, numbers.data() + i, sizeof(some));
    take(some);
  }
  some = Lanes{} - std::numeric_limits<float>::infinity();
  std::memcpy(&some, numbers.data() + i, (numbers.size() - i) * sizeof(float));
  take(some);
  float largest = most[0], sum = broken[0];
  for (size_t lane = 1; lane < kLanes; ++lane) {
    largest = std::max(largest, most[lane]);
    sum += broken[lane];
  }
  return std::isnan(sum) ? sum : largest;
}

// Of equal ones the first one.
bool is_larger(const Largest& a, const Largest& b) {
  return a.value != b.value ? a.value > b.value : a.place < b.place;
}

// Drops all but the `count` largest, of which it returns the last one.
float keep_largest(std::vector<Largest>& numbers, size_t count) {
  const auto last = numbers.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(numbers.begin(), last, numbers.end(), is_larger);
  numbers.resize(count);
  return static_cast<float>(numbers.back().value);
}

}  // namespace

// Its place is looked for in its run alone.
Largest largest(std::span<const float> numbers) {
  constexpr size_t kRun = 1024;
  float most = -std::numeric_limits<float>::infinity();
  size_t place = 0;
  for (size_t start = 0; start < numbers.size(); start += kRun) {
    const float here =
        largest_of_run(numbers.subspan(start, std::min(kRun, numbers.size() - start)));
    if (std::isnan(here)) return {here, static_cast<int64_t>(start)};
    if (here <= most) continue;
    most = here;
    place = start;
  }
  const auto run = numbers.subspan(place);
  place += static_cast<size_t>(std::ranges::find(run, most) - run.begin());
  return {most, static_cast<int64_t>(std::isinf(most) ? 0 : place)};
}

void largest(std::span<const float> numbers, std::span<Largest> to) {
  constexpr size_t kRun = 1024;
  std::ranges::fill(to, Largest{});
  std::vector<Largest> kept;
  // What later numbers have to surpass.
  float least = -std::numeric_limits<float>::infinity();
  for (size_t start = 0; start < numbers.size(); start += kRun) {
    const auto run = numbers.subspan(start, std::min(kRun, numbers.size() - start));
    const float most = largest_of_run(run);
    if (std::isnan(most)) {
      to.front() = {most, static_cast<int64_t>(start)};
      return;
    }
    if (kept.size() >= to.size() && most <= least) continue;
    for (size_t i = 0; i < run.size(); ++i) {
      if (kept.size() >= to.size() && run[i] <= least) continue;
      kept.push_back({run[i], static_cast<int64_t>(start + i)});
      // Rarely, so that a number costs little more than being looked at.
      if (kept.size() == 2 * to.size()) least = keep_largest(kept, to.size());
    }
  }
  const size_t count = std::min(kept.size(), to.size());
  std::partial_sort(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count), kept.end(),
                    is_larger);
  std::copy_n(kept.begin(), count, to.begin());
}

void largest(std::span<const Largest> lists, std::span<Largest> to) {
  const size_t count = to.size();
  std::vector<size_t> next;
  for (size_t first = 0; first < lists.size(); first += count) {
    if (std::isnan(lists[first].value)) {
      to.front() = lists[first];
      return;
    }
    next.push_back(first);
  }
  for (Largest& each : to) {
    const auto best =
        std::ranges::max_element(next, {}, [&](size_t place) { return lists[place].value; });
    each = lists[(*best)++];
  }
}

Largest largest(std::span<const Largest> parts) {
  Largest best;
  for (const Largest& part : parts) {
    if (std::isnan(part.value)) return part;
    if (part.value > best.value) best = part;
  }
  return best;
}

}  // namespace weft::nn
