#pragma once

#include <cstdint>

namespace weft::core {

/// Whether this process may multiply tiles of int8 and bfloat16 (Intel AMX): the processor can, and
/// the system, asked at the first call, lets it. Source: Intel 64 and IA-32 Architectures Software
/// Developer's Manual, volume 1, chapter 18, and Linux's Documentation/arch/x86/xstate.rst.
bool has_amx();

#if defined(__x86_64__)
/// Rows and bytes of a row of each of the eight tile registers, as LDTILECFG reads them. Of up to
/// 16 rows of 64 bytes, 4 * k bytes of a left factor's meet k rows of a right factor's.
struct alignas(64) TileShapes {
  static constexpr int kNum = 8;
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kBytes = 64;

  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  [[gnu::always_inline]] void set(int tile, int64_t tile_rows, int64_t bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

/// Gives this thread's registers their shapes until it goes; one at a time. In has_amx() alone.
class TileSession {
 public:
  [[gnu::always_inline]] explicit TileSession(const TileShapes& shapes) {
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  [[gnu::always_inline]] ~TileSession() { asm volatile("tilerelease"); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

/// Before tiles are loaded from memory that this function wrote: the compiler does not see that
/// they read it.
[[gnu::always_inline]] inline void finish_writes(const void* there) {
  asm volatile("" : : "r"(there) : "memory");
}
#endif

}  // namespace weft::core
