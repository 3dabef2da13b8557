#include "tests/support/main.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace weft::test {
namespace {

std::optional<dist::World>& world_slot() {
  static std::optional<dist::World> world;
  return world;
}

bool body_ran = false;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// A rank of the hierarchical backend takes itself for one on another host than some of its peers:
// the last of two or three ranks is alone on its host, and four are two and two.
void pretend_hosts() {
  if (variable("WEFT_BACKEND") != "hierarchical" || variable("WEFT_RANK").empty()) return;
  const int rank = std::stoi(variable("WEFT_RANK"));
  const int size = std::stoi(variable("WEFT_WORLD_SIZE"));
  const auto host_of = [size](int r) { return size < 4 ? int{r == size - 1} : r / 2; };
  int before = 0, all = 0;
  for (int r = 0; r < size; ++r) {
    if (host_of(r) != host_of(rank)) continue;
    before += r < rank ? 1 : 0;
    ++all;
  }
  setenv("WEFT_HOST", ("host" + std::to_string(host_of(rank))).c_str(), 1);
  setenv("WEFT_LOCAL_RANK", std::to_string(before).c_str(), 1);
  setenv("WEFT_LOCAL_WORLD_SIZE", std::to_string(all).c_str(), 1);
}

}  // namespace

void note_body_ran() { body_ran = true; }

dist::World& shared_world(const dist::WorldOptions& options) {
  auto& world = world_slot();
  if (!world) world = dist::World::from_env(options);
  return *world;
}

}  // namespace weft::test

int main(int argc, char** argv) {
  weft::test::pretend_hosts();
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  weft::test::world_slot().reset();
  if (status == 0 && std::getenv(weft::test::kCallVariable) != nullptr && !weft::test::body_ran) {
    std::fprintf(stderr, "run_ranks: this rank has run no body\n");
    return 1;
  }
  return status;
}
