#include "weft/core/amx.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace weft::core {
namespace {

// The system lists what the processor has and lets programs use; it needs no asking to list it.
TEST(Amx, IsThereWhereTheSystemListsIt) {
  std::ifstream file("/proc/cpuinfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto lists = [&](const std::string& flag) {
    return text.find(" " + flag + " ") != std::string::npos ||
           text.find(" " + flag + "\n") != std::string::npos;
  };
  EXPECT_EQ(has_amx(), lists("amx_tile") && lists("amx_int8") && lists("amx_bf16"));
}

}  // namespace
}  // namespace weft::core
