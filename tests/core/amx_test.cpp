#include "weft/core/amx.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

namespace weft::core {
namespace {

#ifdef __x86_64__
// The system lists what the processor has; a sandbox may still refuse the registers.
TEST(Amx, IsThereWhereTheSystemListsAndGrantsIt) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto lists = [&](const std::string& flag) {
    return text.find(" " + flag + " ") != std::string::npos ||
           text.find(" " + flag + "\n") != std::string::npos;
  };
  constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;
  const bool is_listed = lists("amx_tile") && lists("amx_int8") && lists("amx_bf16");
  EXPECT_EQ(has_amx(), is_listed && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0);
}
#endif

}  // namespace
}  // namespace weft::core
