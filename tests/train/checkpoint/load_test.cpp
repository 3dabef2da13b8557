#include "weft/train/checkpoint/load.h"

#include <algorithm>
#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/train/checkpoint/trained.h"
#include "weft/train/checkpoint/folder.h"

namespace weft::train {
namespace {

using testing::folder_of;
using testing::MeshPlace;
using testing::part_of;
using testing::random_wholes;
using testing::read_whole;
using testing::set_masters;
using testing::Trained;
using testing::Wholes;
using testing::with_folder;
using weft::testing::error_text;
using weft::testing::TempDir;

const MeshPlace kSavedMeshes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2},
                                  {1, 3, 1}, {2, 2, 1}, {1, 2, 2}};

std::string mesh_name(const MeshPlace& mesh) {
  return core::join(mesh.replica, mesh.data, mesh.model);
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
  for (const MeshPlace& mesh : kSavedMeshes) {
    const auto save = [&](const dist::World& world) {
      Trained trained(options, mesh, world);
      trained.step();
      save_checkpoint(folder_of(dir) + "/a" + mesh_name(mesh),
                      {7, trained.optimizer->state(), R"({"seed":3})"}, 2, world.group());
    };
    test::run_ranks(static_cast<int>(mesh.num_ranks()), save, with_folder(dir));
  }
  for (const MeshPlace& mesh : kSavedMeshes) {
    const auto load = [&](const dist::World& world) {
      for (const MeshPlace& from : kSavedMeshes) {
        const std::string run = folder_of(dir) + "/a" + mesh_name(from);
        Trained trained(options, mesh, world);
        const auto loaded = load_checkpoint(find_latest(run).value(), trained.optimizer->state(),
                                            true, world.group());
        EXPECT_EQ(loaded.step, 7);
        EXPECT_EQ(loaded.trainer, R"({"seed":3})");
        const std::string again =
            core::join(folder_of(dir), "/b", mesh_name(from), mesh_name(mesh));
        save_checkpoint(again, {7, trained.optimizer->state(), "null"}, 2, world.group());
        if (world.rank() == 0) {
          expect_same_wholes(find_latest(run).value(), find_latest(again).value(), states);
        }
      }
    };
    test::run_ranks(static_cast<int>(mesh.num_ranks()), load, with_folder(dir));
  }
}

TEST(LoadCheckpoint, SavedOnAnyMeshItLoadsOnAnyOther) {
  const TempDir dir;
  expect_any_mesh_loads(dir, AdamwOptions(), {"master", "exp_avg", "exp_avg_sq"});
}

// What is loaded is what the definition of a cut says, element by element.
TEST(LoadCheckpoint, EveryRankGetsItsElements) {
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

TEST(LoadCheckpoint, StateOfTheWholeLoadsOnAnyMesh) {
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

TEST(LoadCheckpoint, ErrorsOfLoadingAreThoseOfAllRanks) {
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

// Of parameters that one rank alone has it must still be known that another one wants them.
TEST(LoadCheckpoint, RefusesToLeaveParametersOut) {
  const TempDir dir;
  const auto body = [&](const dist::World& world) {
    const std::string run = folder_of(dir);
    Trained trained(AdamwOptions(), {1, 2, 1}, world);
    trained.step();
    save_checkpoint(run, {1, trained.optimizer->state(), "null"}, 2, world.group());
    const std::string folder = find_latest(run).value();
    const auto load_without = [&](const std::vector<std::string>& names) {
      std::vector<StateTensor> wanted = trained.optimizer->state();
      std::erase_if(wanted, [&](const StateTensor& each) {
        return std::ranges::find(names, each.slice.name) != names.end();
      });
      return error_text([&] { load_checkpoint(folder, wanted, true, world.group()); });
    };
    const std::string advice =
        ", which the run does not train; resume with the model and targets that were saved, or "
        "begin a new run";
    EXPECT_EQ(load_without({"norm"}), "FormatError: " + folder + ": has 'norm'" + advice);
    EXPECT_EQ(load_without({"up", "cube", "kv"}),
              "FormatError: " + folder + ": has 'cube' and 2 other parameters" + advice);
  };
  test::run_ranks(2, body, with_folder(dir));
}

TEST(LoadCheckpoint, AnotherOptimizersStateIsMissing) {
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
