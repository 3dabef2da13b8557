#include "weft/core/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft::core {
namespace {

#if defined(__x86_64__) && defined(__linux__)
bool processor_has_amx() {
  constexpr unsigned kBFloat16 = 1U << 22, kTiles = 1U << 24, kInt8 = 1U << 25;
  constexpr unsigned kAll = kBFloat16 | kTiles | kInt8;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAll) == kAll;
}

// The registers' 8 KiB are saved for a process that asked for it alone.
bool request_tiles() {
  constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool processor_has_amx() { return false; }
bool request_tiles() { return false; }
#endif

}  // namespace

bool has_amx() {
  static const bool has = processor_has_amx() && request_tiles();
  return has;
}

}  // namespace weft::core
