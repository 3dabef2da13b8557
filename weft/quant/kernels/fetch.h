#pragma once

#include <cstdint>

namespace weft::quant::kernels {

/// Bytes ahead of what is multiplied. The processor's own guess begins late at each of many short
/// streams; with both distances, generation was 1.2 to 1.5 times as fast as with one of 4 KiB.
inline constexpr int64_t kFarAhead = 10240;
inline constexpr int64_t kNearAhead = 1024;

/// What the next blocks of weights need comes while this one, of `bytes` from w on, is multiplied:
/// first to the second level cache, then to the first.
[[gnu::always_inline]] static inline void fetch_ahead(const uint8_t* w, int64_t bytes) {
  constexpr int kRead = 0, kSecondLevel = 2, kFirstLevel = 3;
  for (int64_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(w + kFarAhead + i, kRead, kSecondLevel);
    __builtin_prefetch(w + kNearAhead + i, kRead, kFirstLevel);
  }
}

}  // namespace weft::quant::kernels
