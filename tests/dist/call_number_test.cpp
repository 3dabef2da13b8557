// Ranks that are out of step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/core/error_text.h"
#include "tests/support/run_ranks.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using testing::error_text;

test::RunOptions over_shared_memory() {
  test::RunOptions options;
  options.backend = "shm";
  options.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}};
  return options;
}

// The calls look alike; only their numbers tell that rank 1 left one out.
TEST(CallNumber, TellsThatARankWentOnAfterAnErrorOfItsOwn) {
  test::run_ranks(
      2,
      [](World& world) {
        const Group& group = world.group();
        at::Tensor x = at::ones({10});
        group.all_reduce(x);
        if (world.rank() == 1) {
          EXPECT_EQ(error_text([&] { group.all_gather(x, 7); }),
                    "ShapeError: dist.Group.all_gather: expected a dim from -1 to 0, got 7");
        }
        const std::string text = error_text([&] { group.all_reduce(x); });
        const std::string end =
            " as its call 3; a rank went on after an error that the others did not have, end all "
            "ranks where one throws";
        EXPECT_EQ(text.find("CommError: dist.Group: group world: rank 0 "), 0) << text;
        EXPECT_NE(text.find(" called all_reduce of Float[10], reduction 1 as its call 2, rank 1 "),
                  std::string::npos)
            << text;
        EXPECT_TRUE(text.ends_with(end)) << text;
      },
      over_shared_memory());
}

TEST(CallNumber, AllowsErrorsThatAllRanksHave) {
  test::run_ranks(
      2,
      [](World& world) {
        const Group& group = world.group();
        at::Tensor x = at::ones({4, 4});
        EXPECT_NE(error_text([&] { group.all_gather(x, 7); }), "no error");
        at::Tensor gaps = x.slice(1, 0, 4, 2);
        group.all_reduce(gaps);
        EXPECT_TRUE(gaps.equal(at::full({4, 2}, 2.0F)));
        EXPECT_EQ(group.all_gather(x, 0).size(0), 8);
        group.check_agreement("word", "same");
        group.barrier();
      },
      over_shared_memory());
}

// One rank's tensor has gaps, and its call is made of two.
TEST(CallNumber, CountsACallOnceHoweverItIsMade) {
  test::run_ranks(
      2,
      [](World& world) {
        const Group& group = world.group();
        at::Tensor x = at::ones({4, 4});
        at::Tensor own = world.rank() == 0 ? x.t().slice(0, 0, 4, 2) : at::ones({2, 4});
        for (int i = 0; i < 3; ++i) group.all_reduce(own);
        EXPECT_TRUE(own.equal(at::full({2, 4}, 8.0F)));
        at::Tensor whole = at::empty({8});
        const auto pending =
            group.begin_all_gather_into(whole, at::full({4}, world.rank()).to(at::kFloat));
        if (pending != nullptr) pending->wait();
        group.all_reduce(x);
        EXPECT_EQ(whole[7].item<float>(), 1.0F);
      },
      over_shared_memory());
}

}  // namespace
}  // namespace weft::dist
