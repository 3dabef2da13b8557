#include "weft/train/checkpoint/writer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/support/run_command.h"
#include "tests/support/run_ranks.h"
#include "tests/train/sharded.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/load.h"
#include "weft/train/checkpoint/reader.h"

namespace weft::train {
namespace {

using testing::MeshPlace;
using testing::OwnedParts;
using testing::part_of;
using testing::random_wholes;
using testing::set_gradients;
using testing::set_masters;
using testing::Wholes;
using weft::testing::error_text;
using weft::testing::replaced;
using weft::testing::TempDir;

const MeshPlace kMeshes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2},
                             {1, 3, 1}, {2, 2, 1}, {1, 2, 2}};

std::string text_of(const MeshPlace& mesh) {
  return core::join(mesh.replica, mesh.data, mesh.model);
}

// Ranks are processes that run the test again: they get the folder of the first by a variable.
test::RunOptions with_folder(const TempDir& dir) {
  test::RunOptions options;
  options.variables = {{"WEFT_TEST_FOLDER", dir.path()}};
  return options;
}

std::string folder_of(const TempDir& dir) {
  const char* given = std::getenv("WEFT_TEST_FOLDER");
  return test::is_rank() && given != nullptr ? given : dir.path();
}

// The optimizer of a rank, with state from one step.
struct Trained {
  OwnedParts parts;
  std::unique_ptr<Optimizer> optimizer;

  Trained(const OptimizerOptions& options, const MeshPlace& mesh, const dist::World& world)
      : parts(mesh, mesh.of(world.rank()), 0.1) {
    optimizer = make_optimizer(options, parts.slices, world.group());
  }
  void step() {
    set_masters(parts, random_wholes(1));
    set_gradients(parts, random_wholes(2));
    optimizer->step(0.01, 1);
  }
};

std::vector<float> read_whole(CheckpointReader& reader, const std::string& name,
                              const std::string& state) {
  Slice whole{name, reader.manifest().parameters.at(name).sizes, {}, 0, {}};
  whole.elements.length = shard_elements(whole);
  std::vector<float> values(static_cast<size_t>(whole.elements.length));
  reader.read(state, whole, values);
  return values;
}

void expect_same_wholes(const std::string& a, const std::string& b,
                        const std::vector<std::string>& states) {
  CheckpointReader first(a);
  CheckpointReader second(b);
  ASSERT_EQ(first.manifest().parameters.size(), 8U);
  ASSERT_EQ(second.manifest().parameters.size(), 8U);
  for (const auto& [name, parameter] : first.manifest().parameters) {
    for (const std::string& state : states) {
      EXPECT_EQ(read_whole(first, name, state), read_whole(second, name, state)) << name << state;
    }
  }
}

// Saved on every mesh, loaded on every mesh, saved again there: the same wholes, bit for bit.
void expect_any_mesh_loads(const TempDir& dir, const OptimizerOptions& options,
                           const std::vector<std::string>& states) {
  for (const MeshPlace& mesh : kMeshes) {
    const auto save = [&](const dist::World& world) {
      Trained trained(options, mesh, world);
      trained.step();
      save_checkpoint(folder_of(dir) + "/a" + text_of(mesh),
                      {7, trained.optimizer->state(), R"({"seed":3})"}, 2, world.group());
    };
    test::run_ranks(static_cast<int>(mesh.num_ranks()), save, with_folder(dir));
  }
  for (const MeshPlace& mesh : kMeshes) {
    const auto load = [&](const dist::World& world) {
      for (const MeshPlace& from : kMeshes) {
        const std::string run = folder_of(dir) + "/a" + text_of(from);
        Trained trained(options, mesh, world);
        const auto loaded = load_checkpoint(find_latest(run).value(), trained.optimizer->state(),
                                            true, world.group());
        EXPECT_EQ(loaded.step, 7);
        EXPECT_EQ(loaded.trainer, R"({"seed":3})");
        const std::string again = core::join(folder_of(dir), "/b", text_of(from), text_of(mesh));
        save_checkpoint(again, {7, trained.optimizer->state(), "null"}, 2, world.group());
        if (world.rank() == 0) {
          expect_same_wholes(find_latest(run).value(), find_latest(again).value(), states);
        }
      }
    };
    test::run_ranks(static_cast<int>(mesh.num_ranks()), load, with_folder(dir));
  }
}

TEST(Checkpoint, SavedOnAnyMeshItLoadsOnAnyOther) {
  const TempDir dir;
  expect_any_mesh_loads(dir, AdamwOptions(), {"master", "exp_avg", "exp_avg_sq"});
}

// What is loaded is what the definition of a cut says, element by element.
TEST(Checkpoint, EveryRankGetsItsElements) {
  const TempDir dir;
  const auto save = [&](const dist::World& world) {
    Trained trained(SgdOptions(), {1, 2, 2}, world);
    set_masters(trained.parts, random_wholes(1));
    save_checkpoint(folder_of(dir), {1, trained.optimizer->state(), "null"}, 2, world.group());
  };
  test::run_ranks(4, save, with_folder(dir));
  const auto load = [&](const dist::World& world) {
    const Wholes wholes = random_wholes(1);
    Trained trained(SgdOptions(), {1, 1, 3}, world);
    load_checkpoint(find_latest(folder_of(dir)).value(), trained.optimizer->state(), false,
                    world.group());
    for (const OwnedSlice& owned : trained.parts.slices) {
      EXPECT_TRUE(at::equal(owned.master, part_of(wholes.at(owned.slice.name), owned.slice)))
          << owned.slice.name;
    }
  };
  test::run_ranks(3, load, with_folder(dir));
}

TEST(Checkpoint, StateOfTheWholeLoadsOnAnyMesh) {
  const TempDir dir;
  const auto save = [&](const dist::World& world) {
    Trained trained(AdafactorOptions(), {1, 2, 2}, world);
    trained.step();
    save_checkpoint(folder_of(dir), {1, trained.optimizer->state(), "null"}, 2, world.group());
  };
  test::run_ranks(4, save, with_folder(dir));
  const auto load = [&](const dist::World& world) {
    Trained trained(AdafactorOptions(), {2, 1, 1}, world);
    load_checkpoint(find_latest(folder_of(dir)).value(), trained.optimizer->state(), true,
                    world.group());
    Trained expected(AdafactorOptions(), {2, 1, 1}, world);
    expected.step();
    const auto want = expected.optimizer->state();
    const auto got = trained.optimizer->state();
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(at::allclose(got[i].values, want[i].values, 1e-5, 1e-7)) << want[i].state;
    }
  };
  test::run_ranks(2, load, with_folder(dir));
}

// A state of one value for each element of one parameter, all alike.
CheckpointContent uniform(int64_t step, int64_t length) {
  const at::Tensor values = at::full({length}, static_cast<double>(step));
  const Slice slice{"w", {length}, {}, 0, {0, length}};
  return {step, {{"master", slice, values, false}, {"exp_avg", slice, values, false}}, "null"};
}

// The value that all elements of a complete checkpoint have; fails if they differ.
float only_value(const std::string& folder) {
  CheckpointReader reader(folder);
  reader.check_file(0, true);
  const auto master = read_whole(reader, "w", "master");
  EXPECT_EQ(std::count(master.begin(), master.end(), master[0]),
            static_cast<int64_t>(master.size()));
  EXPECT_EQ(read_whole(reader, "w", "exp_avg"), master);
  return master[0];
}

TEST(Checkpoint, KeepsTheNewestAndCleansUp) {
  const TempDir dir;
  const std::string run = dir.path();
  EXPECT_EQ(find_latest(run), std::nullopt);
  std::filesystem::create_directories(run + "/checkpoints/step-000007.tmp-123");
  std::filesystem::create_directories(run + "/checkpoints/step-000003.tmp-removed");
  std::filesystem::create_directories(run + "/checkpoints/notes.tmp-1");
  for (const int64_t step : {9, 10, 100, 99}) save_checkpoint(run, uniform(step, 5), 2, {});
  EXPECT_EQ(list_checkpoints(run), (std::vector<int64_t>{99, 100}));
  EXPECT_EQ(only_value(find_latest(run).value()), 100);
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    entries += entry.exists();
  }
  EXPECT_EQ(entries, 3U) << "two checkpoints and what is not ours";
}

TEST(Checkpoint, OneOfTheSameStepIsReplaced) {
  const TempDir dir;
  CheckpointContent content = uniform(5, 6);
  save_checkpoint(dir.path(), content, 2, {});
  for (StateTensor& each : content.tensors) each.values = at::full({6}, 2.0);
  save_checkpoint(dir.path(), content, 2, {});
  EXPECT_EQ(only_value(find_latest(dir.path()).value()), 2);
}

TEST(Checkpoint, InTheBackgroundTheTensorsMayChange) {
  const TempDir dir;
  CheckpointWriter writer(dir.path(), {2, true}, {});
  for (int64_t step = 1; step <= 3; ++step) {
    CheckpointContent content = uniform(step, 100'000);
    writer.begin(content);
    content.tensors[0].values.fill_(-1);
    content.tensors[1].values.fill_(-1);
    // The one before is complete as soon as the next has begun.
    if (step > 1) {
      EXPECT_EQ(only_value(find_latest(dir.path()).value()), static_cast<float>(step - 1));
    }
  }
  writer.finish();
  EXPECT_EQ(only_value(find_latest(dir.path()).value()), 3);
  EXPECT_EQ(list_checkpoints(dir.path()).size(), 2U);
}

TEST(Checkpoint, WhatWasNotFinishedGoes) {
  const TempDir dir;
  save_checkpoint(dir.path(), uniform(1, 10), 2, {});
  { CheckpointWriter(dir.path(), {2, true}, {}).begin(uniform(2, 10)); }
  EXPECT_EQ(list_checkpoints(dir.path()), (std::vector<int64_t>{1}));
  const std::filesystem::directory_iterator entries(dir.path() + "/checkpoints");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

// Saves until it is killed.
int save_forever(const std::string& run) {
  const auto latest = list_checkpoints(run);
  for (int64_t step = latest.empty() ? 1 : latest.back() + 1;; ++step) {
    save_checkpoint(run, uniform(step, 20'000), 2, {});
  }
}

TEST(Checkpoint, KilledAtAnyMomentOneLoads) {
  const TempDir dir;
  save_checkpoint(dir.path(), uniform(1, 20'000), 2, {});
  std::mt19937 random(6);
  int64_t newest = 1;
  for (int i = 0; i < 50; ++i) {
    test::BackgroundCommand saving([&] { return save_forever(dir.path()); });
    std::this_thread::sleep_for(std::chrono::microseconds(1000 + random() % 60'000));
    saving.signal(SIGKILL);
    EXPECT_EQ(saving.finish().status, 128 + SIGKILL);
    const auto steps = list_checkpoints(dir.path());
    ASSERT_FALSE(steps.empty());
    EXPECT_GE(steps.back(), newest) << "the newest must stay";
    newest = steps.back();
    for (const int64_t step : steps) {
      EXPECT_EQ(only_value(checkpoint_path(dir.path(), step)), static_cast<float>(step));
    }
  }
  EXPECT_GT(newest, 1) << "nothing was ever saved";
  save_checkpoint(dir.path(), uniform(newest + 1, 5), 1, {});
  const std::filesystem::directory_iterator entries(dir.path() + "/checkpoints");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "what was left is cleaned up";
}

// The same with several ranks: the last one gets no more than `bytes` into a file, as on a full
// disk of its own.
TEST(Checkpoint, AFullDiskOfOneRankIsAnErrorOfAllAndKeepsTheOld) {
  const TempDir dir;
  const auto body = [&](const dist::World& world) {
    const std::string run = folder_of(dir);
    Trained trained(AdamwOptions(), {1, 3, 1}, world);
    trained.step();
    save_checkpoint(run, {1, trained.optimizer->state(), "null"}, 2, world.group());
    if (world.rank() == 2) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{1000, 1000};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    const std::string text = error_text([&] {
      save_checkpoint(run, {2, trained.optimizer->state(), "null"}, 2, world.group());
    });
    EXPECT_EQ(text.substr(0, 9 + run.size()), "IoError: " + run);
    EXPECT_NE(text.find("/rank-00002.safetensors: cannot write at byte 0: File too large"),
              std::string::npos)
        << text;
    EXPECT_EQ(list_checkpoints(run), (std::vector<int64_t>{1}));
    load_checkpoint(find_latest(run).value(), trained.optimizer->state(), true, world.group());
    if (world.rank() == 0) {
      const std::filesystem::directory_iterator entries(run + "/checkpoints");
      EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
    }
  };
  test::run_ranks(3, body, with_folder(dir));
}

TEST(Checkpoint, ErrorsOfLoadingAreThoseOfAllRanks) {
  const TempDir dir;
  const auto body = [&](const dist::World& world) {
    const std::string run = folder_of(dir);
    Trained trained(AdamwOptions(), {1, 2, 1}, world);
    save_checkpoint(run, {1, trained.optimizer->state(), "null"}, 2, world.group());
    const std::string folder = find_latest(run).value();
    if (world.rank() == 0) std::filesystem::remove(folder + "/rank-00001.safetensors");
    world.group().barrier();
    EXPECT_EQ(error_text([&] {
                load_checkpoint(folder, trained.optimizer->state(), false, world.group());
              }),
              "FormatError: " + folder + "/rank-00001.safetensors: no such file; check the path");
  };
  test::run_ranks(2, body, with_folder(dir));
}

TEST(Checkpoint, AnotherOptimizersStateIsMissing) {
  const TempDir dir;
  const dist::World world = dist::World::from_env();
  Trained saved(SgdOptions(), {1, 1, 1}, world);
  save_checkpoint(dir.path(), {1, saved.optimizer->state(), "null"}, 2, world.group());
  Trained wanted(AdamwOptions(), {1, 1, 1}, world);
  const std::string folder = find_latest(dir.path()).value();
  EXPECT_EQ(
      error_text([&] { load_checkpoint(folder, wanted.optimizer->state(), false, world.group()); }),
      "FormatError: " + folder +
          ": parameter 'embedding': no exp_avg, it has master, momentum; use the optimizer "
          "that it was saved with");
}

}  // namespace
}  // namespace weft::train
