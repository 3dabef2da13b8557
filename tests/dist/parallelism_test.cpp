#include "weft/dist/parallelism.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/dist/message_of.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"

namespace weft::dist {
namespace {

using test::message_of;

TEST(ParallelSizes, GiveDataWhatModelAndPipeLeave) {
  EXPECT_EQ(parallel_sizes(8, 2, 2), (ParallelSizes{2, 2, 2}));
  EXPECT_EQ(parallel_sizes(1, 1, 1), (ParallelSizes{1, 1, 1}));
  for (int64_t ranks = 1; ranks <= 24; ++ranks) {
    for (int64_t model = 1; model <= ranks; ++model) {
      for (int64_t pipe = 1; pipe <= ranks; ++pipe) {
        if (ranks % (model * pipe) != 0) continue;
        const ParallelSizes sizes = parallel_sizes(ranks, model, pipe);
        EXPECT_EQ(sizes.data * sizes.pipe * sizes.model, ranks);
      }
    }
  }
}

TEST(ParallelSizes, ThatDoNotMultiplyToTheWorldAreRefusedWithThoseThatDo) {
  EXPECT_EQ(message_of<core::ConfigError>([] { parallel_sizes(4, 3, 1); }),
            "dist.init_parallelism: model=3 x pipe=1: expected a divisor of the world's 4 ranks, "
            "got 3; use model x pipe of 1, 2 or 4, e.g. model=2 pipe=1 (data=2)");
  EXPECT_EQ(message_of<core::ConfigError>([] { parallel_sizes(12, 5, 3); }),
            "dist.init_parallelism: model=5 x pipe=3: expected a divisor of the world's 12 ranks, "
            "got 15; use model x pipe of 1, 2, 3, 4, 6 or 12, e.g. model=4 pipe=3 (data=1)");
  EXPECT_EQ(message_of<core::ConfigError>([] { parallel_sizes(1, 2, 1); }),
            "dist.init_parallelism: model=2 x pipe=1: expected a divisor of the world's 1 ranks, "
            "got 2; use model x pipe of 1, e.g. model=1 pipe=1 (data=1)");
  EXPECT_EQ(message_of<core::ConfigError>([] { parallel_sizes(4, 0, 1); }),
            "dist.init_parallelism: model=0 x pipe=1: expected sizes of at least 1; use model=1 "
            "pipe=1 for none");
  EXPECT_NE(message_of<core::ConfigError>([] {
              parallel_sizes(4, int64_t{1} << 62, 8);
            }).find("got more; use"),
            std::string::npos);
}

TEST(PipelineLayers, EveryLayerIsHeldExactlyOnce) {
  std::vector<std::pair<int64_t, int64_t>> cases = {{7, 2}, {61, 2}, {62, 4}};
  for (int64_t layers = 1; layers <= 40; ++layers) {
    for (int64_t stages = 1; stages <= layers; ++stages) cases.emplace_back(layers, stages);
  }
  for (const auto& [layers, stages] : cases) {
    int64_t next = 0;
    for (int64_t stage = 0; stage < stages; ++stage) {
      const shard::Range range = pipeline_layers(layers, stages, stage);
      EXPECT_EQ(range.start, next) << layers << " over " << stages;
      EXPECT_GE(range.length, layers / stages);
      EXPECT_LE(range.length, layers / stages + 1);
      next = range.end();
    }
    EXPECT_EQ(next, layers) << layers << " over " << stages;
  }
  EXPECT_EQ(pipeline_layers(7, 2, 0), (shard::Range{0, 4}));
  EXPECT_EQ(pipeline_layers(61, 2, 1), (shard::Range{31, 30}));
  EXPECT_EQ(pipeline_layers(62, 4, 1), (shard::Range{16, 16}));
}

TEST(PipelineLayers, RefusesMoreStagesThanLayers) {
  EXPECT_EQ(message_of<core::ConfigError>([] { pipeline_layers(3, 4, 0); }),
            "dist.pipeline_layers: expected a layer for each stage, got 3 layers for 4 stages; use "
            "a pipe size of 1 to 3");
}

TEST(Parallelism, InAWorldOfOneIsGroupsOfOne) {
  EXPECT_EQ(message_of<core::ConfigError>([] { parallel_group_info(); }),
            "dist.parallel_group_info: expected init_parallelism to have been called; call it on "
            "every rank once the world is there");
  EXPECT_EQ(model_group().size(), 1);
  const World world = World::from_env();
  const Parallelism parallelism = init_parallelism(world, 1, 1);
  EXPECT_EQ(parallel_group_info().mp.size(), 1);
  EXPECT_EQ(parallel_group_info().pp.size(), 1);
  EXPECT_EQ(parallel_group_info().dp.size(), 1);
  EXPECT_EQ(&model_group(), &parallel_group_info().mp);
  EXPECT_EQ(parallelism.pipeline_layers(5), (shard::Range{0, 5}));
  reset_parallelism();
  EXPECT_NE(message_of<core::ConfigError>([] { parallel_group_info(); }), "nothing was thrown");
}

// One bit for each rank: a sum shows exactly which ranks took part.
int64_t ranks_in(const Group& group, int rank) {
  at::Tensor bits = at::full({1}, int64_t{1} << rank, at::kLong);
  group.all_reduce(bits);
  return bits.item<int64_t>();
}

int64_t expected_ranks(const ParallelSizes& sizes, int rank, const std::string& axis) {
  const auto place = [&](int64_t of) {
    return ParallelSizes{of / (sizes.pipe * sizes.model), of / sizes.model % sizes.pipe,
                         of % sizes.model};
  };
  const ParallelSizes own = place(rank);
  int64_t bits = 0;
  for (int64_t other = 0; other < sizes.data * sizes.pipe * sizes.model; ++other) {
    const ParallelSizes theirs = place(other);
    const bool together = (axis == "data" || theirs.data == own.data) &&
                          (axis == "pipe" || theirs.pipe == own.pipe) &&
                          (axis == "model" || theirs.model == own.model);
    if (together) bits |= int64_t{1} << other;
  }
  return bits;
}

void expect_groups(const World& world, int64_t model, int64_t pipe) {
  SCOPED_TRACE(core::join(world.size(), " ranks, model=", model, " pipe=", pipe));
  reset_parallelism();
  const Parallelism parallelism = init_parallelism(world, model, pipe);
  const ParallelGroupInfo& groups = parallel_group_info();
  EXPECT_EQ(ranks_in(groups.mp, world.rank()),
            expected_ranks(parallelism.sizes(), world.rank(), "model"));
  EXPECT_EQ(ranks_in(groups.pp, world.rank()),
            expected_ranks(parallelism.sizes(), world.rank(), "pipe"));
  EXPECT_EQ(ranks_in(groups.dp, world.rank()),
            expected_ranks(parallelism.sizes(), world.rank(), "data"));
  EXPECT_EQ(groups.mp.rank(), world.rank() % model);
  EXPECT_EQ(model_group(), groups.mp);
}

void expect_all_layouts(const World& world) {
  for (int64_t model = 1; model <= world.size(); ++model) {
    for (int64_t pipe = 1; pipe <= world.size(); ++pipe) {
      if (world.size() % (model * pipe) == 0) expect_groups(world, model, pipe);
    }
  }
}

TEST(Parallelism, GroupsSumOverExactlyTheirRanks) {
  for (const int n : {3, 4, 8}) {
    test::run_ranks(n, [](World& world) {
      expect_all_layouts(world);
      reset_parallelism();
    });
  }
}

TEST(Parallelism, IsRefusedAlikeOnAllRanks) {
  test::run_ranks(4, [](World& world) {
    EXPECT_EQ(model_group(), world.group());
    EXPECT_EQ(
        message_of<core::ConfigError>([&] { init_parallelism(world, 2, 2); }),
        "dist.init_parallelism: model=2 x pipe=2: expected the first call before any layer, got "
        "it after one has taken all 4 ranks for its model group; call it right after the world "
        "is made");
    reset_parallelism();
    EXPECT_EQ(message_of<core::ConfigError>([&] { init_parallelism(world, 1, 3); }),
              "dist.init_parallelism: model=1 x pipe=3: expected a divisor of the world's 4 ranks, "
              "got 3; use model x pipe of 1, 2 or 4, e.g. model=1 pipe=2 (data=2)");
    const Parallelism first = init_parallelism(world, 2, 2);
    EXPECT_EQ(init_parallelism(world, 2, 2).groups().mp, first.groups().mp);
    EXPECT_EQ(message_of<core::ConfigError>([&] { init_parallelism(world, 2, 1); }),
              "dist.init_parallelism: model=2 x pipe=1: expected model=2 x pipe=2 as in the first "
              "call, got other sizes; call it once");
    // Stages in rank order over pipe, and together all seven layers.
    at::Tensor held = at::zeros({7}, at::kLong);
    const shard::Range mine = first.pipeline_layers(7);
    held.narrow(0, mine.start, mine.length).fill_(1);
    parallel_group_info().pp.all_reduce(held);
    EXPECT_TRUE(at::equal(held, at::ones({7}, at::kLong)));
  });
}

// Left to the process's end on purpose: the groups go with it without a word.
TEST(Parallelism, MayBeLeftForTheEndOfTheProcess) {
  for (const char* backend : {"shm", "gloo"}) {
    test::run_ranks(2, [](World& world) { init_parallelism(world, 2, 1); }, {.backend = backend});
  }
}

}  // namespace
}  // namespace weft::dist
