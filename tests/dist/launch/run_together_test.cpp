#include "weft/dist/launch/run_together.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/core/error_text.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;
using test::run_ranks;
using testing::error_text;

TEST(RunTogether, ThrowsTheFirstFailureOnAllRanks) {
  run_ranks(3, [](World& world) {
    const Group& group = world.group();
    int runs = 0;
    run_together(group, [&] { ++runs; });
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(error_text([&] {
                run_together(group, [&] {
                  core::check<core::IoError>(group.rank() == 0, "rank ", group.rank(),
                                             ": disk full");
                });
              }),
              "IoError: rank 1: disk full");
    EXPECT_EQ(error_text([&] {
                run_together(group, [&] {
                  if (group.rank() == 2) throw std::runtime_error("odd");
                });
              }),
              "InternalError: odd");
    // And the ranks go on together.
    group.barrier();
  });
}

// A corpus that takes an hour on rank 0 is no reason to give up the others.
TEST(RunTogether, WaitsLongerThanACollectiveMay) {
  for (const char* backend : {"shm", "gloo"}) {
    run_ranks(2,
              [](World& world) {
                int runs = 0;
                EXPECT_EQ(error_text([&] {
                            run_together(world, [&] {
                              ++runs;
                              if (world.rank() == 1) std::this_thread::sleep_for(2500ms);
                              core::check<core::IoError>(world.rank() == 0, "rank 1: disk full");
                            });
                          }),
                          "IoError: rank 1: disk full");
                EXPECT_EQ(runs, 1);
                world.group().barrier();
              },
              {.backend = backend, .variables = {{"WEFT_TIMEOUT_S", "1"}}});
  }
}

TEST(RunTogether, RunsHereInAGroupOfOne) {
  EXPECT_EQ(
      error_text([] { run_together(Group(), [] { core::fail<core::ShapeError>("a: wrong"); }); }),
      "ShapeError: a: wrong");
}

}  // namespace
}  // namespace weft::dist
