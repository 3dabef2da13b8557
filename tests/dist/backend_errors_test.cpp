// Exceptions of the libraries underneath reach nobody as they are.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/core/error_text.h"
#include "tests/support/run_ranks.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using testing::error_text;

// Gloo gives up by an exception of its own when its time is over, here while nobody looks.
TEST(BackendErrors, OfWorkInTheBackgroundAreCommErrors) {
  test::RunOptions options;
  options.backend = "gloo";
  options.variables = {{"WEFT_TIMEOUT_S", "2"}, {"WEFT_CHECK_COLLECTIVES", "0"}};
  test::run_ranks(
      2,
      [](World& world) {
        const Group& group = world.group();
        group.barrier();
        if (world.rank() == 1) {
          sleep(4);
          return;
        }
        at::Tensor whole = at::empty({8});
        const auto pending = group.begin_all_gather_into(whole, at::ones({4}));
        ASSERT_NE(pending, nullptr);
        const std::string text = error_text([&] { pending->wait(); });
        EXPECT_EQ(text.find("CommError: dist.Group: all_gather #2 of group world: "), 0) << text;
        EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      },
      options);
}

}  // namespace
}  // namespace weft::dist
