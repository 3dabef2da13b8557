#pragma once

#include <cstdint>

#include "weft/quant/kernels/panel_kernel.h"

/// Reading the weights that a single token waits for.
namespace weft::quant::kernels {

/// What the next blocks of one of kStreams streams need comes while this one, of `bytes` from w on,
/// is multiplied: first to the second level cache, then to the first. The processor's own guess
/// begins late at each of many short streams; with both distances, generation was 1.2 to 1.5 times
/// as fast as with one of 4 KiB.
template <int kStreams>
[[gnu::always_inline]] static inline void fetch_ahead(const uint8_t* w, int64_t bytes) {
  constexpr int kRead = 0, kSecondLevel = 2, kFirstLevel = 3;
  constexpr int64_t kFarAhead = kStreams == 1 ? 10240 : 4096, kNearAhead = 1024;
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(w + kFarAhead + i, kRead, kSecondLevel);
    __builtin_prefetch(w + kNearAhead + i, kRead, kFirstLevel);
  }
}

/// The first bytes of kStreams streams, `apart` from one to the next, at once: what fetch_ahead
/// asks for comes after them.
template <int kStreams>
[[gnu::always_inline]] static inline void fetch_first(const uint8_t* w, int64_t apart) {
  constexpr int64_t kBytes = 1536;
  for (int64_t i = 0; i < kBytes; i += 64) {
    for (int stream = 0; stream < kStreams; ++stream) __builtin_prefetch(w + stream * apart + i);
  }
}

/// Panels that are multiplied together: the first of them, and how many bytes, and rows of the
/// result, it is from each to the next.
struct PanelRun {
  const uint8_t* panel = nullptr;
  int64_t apart = 0;
  int64_t rows_apart = 0;
};

/// Calls use.operator()<kCount>(run, row) until all of w's panels [first, first + count) are done:
/// with kCount = kStreams far from each other, as memory answers several streams faster than one,
/// then with kCount = 1 for those that are left. `row` is the run's first row of the result.
template <int kStreams, class Use>
[[gnu::always_inline]] static inline void for_streams(const Panels& w, int64_t first, int64_t count,
                                                      Use&& use) {
  const int64_t bytes = w.panel_bytes(), each = count / kStreams;
  const uint8_t* const panels = w.data + first * bytes;
  // Later columns of a row come ahead of time with those before them.
  if (each > 0 && w.first_block == 0) fetch_first<kStreams>(panels, each * bytes);
  for (int64_t i = 0; i < each; ++i) {
    const PanelRun run{panels + i * bytes, each * bytes, each * kPanelRows};
    use.template operator()<kStreams>(run, i * kPanelRows);
  }
  for (int64_t i = kStreams * each; i < count; ++i) {
    use.template operator()<1>(PanelRun{panels + i * bytes}, i * kPanelRows);
  }
}

}  // namespace weft::quant::kernels
