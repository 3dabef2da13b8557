#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/support/run_ranks.h"
#include "tests/train/sharded.h"
#include "weft/train/checkpoint/reader.h"
#include "weft/train/checkpoint/writer.h"
#include "weft/train/optimizer/optimizer.h"

namespace weft::train::testing {

/// Ranks are processes that run the test again: they get the folder of the first by a variable.
inline weft::test::RunOptions with_folder(const weft::testing::TempDir& dir) {
  weft::test::RunOptions options;
  options.variables = {{"WEFT_TEST_FOLDER", dir.path()}};
  return options;
}

inline std::string folder_of(const weft::testing::TempDir& dir) {
  const char* given = std::getenv("WEFT_TEST_FOLDER");
  return weft::test::is_rank() && given != nullptr ? given : dir.path();
}

/// The optimizer of a rank, with state from one step.
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

inline std::vector<float> read_whole(CheckpointReader& reader, const std::string& name,
                                     const std::string& state) {
  Slice whole{name, reader.manifest().parameters.at(name).sizes, {}, 0, {}};
  whole.elements.length = shard_elements(whole);
  std::vector<float> values(static_cast<size_t>(whole.elements.length));
  reader.read(state, whole, values);
  return values;
}

/// A state of one value for each element of one parameter, all alike.
inline CheckpointContent uniform(int64_t step, int64_t length) {
  const at::Tensor values = at::full({length}, static_cast<double>(step));
  const Slice slice{"w", {length}, {}, 0, {0, length}};
  return {step, {{"master", slice, values, false}, {"exp_avg", slice, values, false}}, "null"};
}

/// The value that all elements of a complete checkpoint have; fails if they differ.
inline float only_value(const std::string& folder) {
  CheckpointReader reader(folder);
  reader.check_file(0, true);
  const auto master = read_whole(reader, "w", "master");
  EXPECT_EQ(std::count(master.begin(), master.end(), master[0]),
            static_cast<int64_t>(master.size()));
  EXPECT_EQ(read_whole(reader, "w", "exp_avg"), master);
  return master[0];
}

}  // namespace weft::train::testing
