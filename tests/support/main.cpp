#include "tests/support/main.h"

#include <gtest/gtest.h>

#include <optional>

namespace weft::test {
namespace {

std::optional<dist::World>& world_slot() {
  static std::optional<dist::World> world;
  return world;
}

}  // namespace

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
  return status;
}
