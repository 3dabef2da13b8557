#include "tests/support/main.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/rank_origin.h"
#include "weft/core/process_end.h"

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

// True in what run_ranks has started.
bool is_started_rank() { return std::getenv(kCallVariable) != nullptr; }

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

// A rank's share of the processors, which OpenMP reads when it is loaded.
void take_threads() {
  const std::string threads = variable("OMP_NUM_THREADS");
  if (!threads.empty()) at::set_num_threads(std::stoi(threads));
}

}  // namespace

void note_body_ran() { body_ran = true; }

dist::World& shared_world(const dist::WorldOptions& options) {
  auto& world = world_slot();
  if (!world) world = dist::World::from_env(options);
  return *world;
}

namespace {

int run(int argc, char** argv) {
  pretend_hosts();
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  world_slot().reset();
  if (status == 0 && is_started_rank() && !body_ran) {
    std::fprintf(stderr, "run_ranks: this rank has run no body\n");
    return 1;
  }
  return status;
}

int run_rank(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  take_threads();
  core::end_without_destructors();
  return run(static_cast<int>(arguments.size()), argv.data());
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  if (!weft::test::is_started_rank()) weft::test::start_rank_origin(weft::test::run_rank);
  return weft::test::run(argc, argv);
}
