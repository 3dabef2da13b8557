#include "tests/support/main.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace weft::test {
namespace {

std::optional<dist::World>& world_slot() {
  static std::optional<dist::World> world;
  return world;
}

bool body_ran = false;

}  // namespace

void note_body_ran() { body_ran = true; }

dist::World& shared_world(const dist::WorldOptions& options) {
  auto& world = world_slot();
  if (!world) world = dist::World::from_env(options);
  return *world;
}

}  // namespace weft::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  weft::test::world_slot().reset();
  if (status == 0 && std::getenv(weft::test::kCallVariable) != nullptr && !weft::test::body_ran) {
    std::fprintf(stderr, "run_ranks: this rank has run no body\n");
    return 1;
  }
  return status;
}
