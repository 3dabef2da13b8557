#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::bench {

/// The least that two or more processes must do to exchange floats: show, wait for a flag, copy or
/// add. No checks, no way to notice a dead peer, nothing above it. Where ranks outnumber processors
/// (`gives_way`) a waiting one gives its processor away.
class BareLoop {
 public:
  /// `memory` is zeroed, shared, and size_for() bytes long.
  BareLoop(std::byte* memory, int rank, int ranks, size_t bytes, bool gives_way)
      : memory_(memory), rank_(rank), ranks_(ranks), bytes_(bytes), gives_way_(gives_way) {}

  /// For messages of up to `bytes`.
  static size_t size_for(int ranks, size_t bytes) {
    return static_cast<size_t>(ranks) * (kLine + 2 * bytes);
  }

  /// Sums `count` elements of all ranks in place.
  void all_reduce(float* x, int64_t count) {
    show(x, count);
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_) add(x, buffer(r), count);
    }
  }

  /// `out` becomes the ranks' `count` elements each, end to end.
  void all_gather(float* out, const float* own, int64_t count) {
    show(own, count);
    for (int r = 0; r < ranks_; ++r) {
      std::memcpy(out + r * count, r == rank_ ? own : buffer(r), size_of(count));
    }
  }

  /// `out` becomes this rank's `count` elements of the sum of all ranks' `x`.
  void reduce_scatter(float* out, const float* x, int64_t count) {
    show(x, count * ranks_);
    std::memcpy(out, x + rank_ * count, size_of(count));
    for (int r = 0; r < ranks_; ++r) {
      if (r != rank_) add(out, buffer(r) + rank_ * count, count);
    }
  }

 private:
  static constexpr size_t kLine = 128;

  static size_t size_of(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

  static void add(float* x, const float* other, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) x[i] += other[i];
  }

  void show(const float* x, int64_t count) {
    ++step_;
    std::memcpy(buffer(rank_), x, size_of(count));
    flag(rank_).store(step_, std::memory_order_release);
    for (int r = 0; r < ranks_; ++r) {
      while (flag(r).load(std::memory_order_acquire) < step_) {
        if (gives_way_) {
          sched_yield();
        } else {
          __builtin_ia32_pause();
        }
      }
    }
  }

  std::atomic<uint64_t>& flag(int rank) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_ + static_cast<size_t>(rank) * kLine);
  }
  float* buffer(int rank) const {
    const size_t index = 2 * static_cast<size_t>(rank) + step_ % 2;
    return reinterpret_cast<float*>(memory_ + static_cast<size_t>(ranks_) * kLine + index * bytes_);
  }

  std::byte* memory_;
  int rank_;
  int ranks_;
  size_t bytes_;
  bool gives_way_;
  uint64_t step_ = 0;
};

}  // namespace weft::bench
