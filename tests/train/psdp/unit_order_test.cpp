// Data ranks whose sequences take different ways through a module: experts, early exits.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/train/psdp/sharded_module.h"

// Shape letters: B sequences, D width.

namespace weft::train {
namespace {

constexpr int64_t kUnitBatch = 2, kUnitWidth = 3, kNumExperts = 3;
// A place in a way that stands for the module around the experts.
constexpr int kRoot = -1;

using Way = std::vector<int>;
// What a rank does in a step: a way for each microbatch.
using Ways = std::vector<Way>;

at::Tensor whole_numbers(const std::vector<int64_t>& sizes, int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed));
  return at::randint(-2, 3, sizes, generator, at::kFloat);
}

// Whole numbers throughout, so that sums are exact in any order.
class FactorImpl : public torch::nn::Module {
 public:
  explicit FactorImpl(int64_t seed)
      : weight_DD(register_parameter("weight", whole_numbers({kUnitWidth, kUnitWidth}, seed))) {}
  at::Tensor weight_DD;
};
TORCH_MODULE(Factor);

class ExpertsImpl : public torch::nn::Module {
 public:
  ExpertsImpl() : scale_D(register_parameter("scale", whole_numbers({kUnitWidth}, 99))) {
    for (int i = 0; i < kNumExperts; ++i) {
      experts_.emplace_back(i + 1);
      register_module(core::join("expert_", i), experts_.back());
    }
  }
  std::vector<std::shared_ptr<torch::nn::Module>> units() const {
    return {experts_[0].ptr(), experts_[1].ptr(), experts_[2].ptr()};
  }
  at::Tensor forward(at::Tensor x_BD, const Way& way) {
    for (const int place : way) {
      x_BD = place == kRoot ? x_BD * scale_D
                            : at::mm(x_BD, experts_[static_cast<size_t>(place)]->weight_DD);
    }
    return x_BD.sum();
  }

 private:
  at::Tensor scale_D;
  std::vector<Factor> experts_;
};
TORCH_MODULE(Experts);

at::Tensor input_BD(int64_t rank, size_t microbatch) {
  return whole_numbers({kUnitBatch, kUnitWidth},
                       1000 + rank * 10 + static_cast<int64_t>(microbatch));
}

const Ways& ways_of(const std::vector<Ways>& by_rank, int64_t rank) {
  return by_rank[static_cast<size_t>(rank) % by_rank.size()];
}

// By plain libtorch: the gradients of the sum over all ranks and microbatches.
std::map<std::string, at::Tensor> whole_gradients(const std::vector<Ways>& by_rank, int64_t ranks) {
  Experts model;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Ways& ways = ways_of(by_rank, rank);
    for (size_t i = 0; i < ways.size(); ++i) model->forward(input_BD(rank, i), ways[i]).backward();
  }
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : model->named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    gradients[item.key()] =
        (gradient.defined() ? gradient : at::zeros_like(item.value())).flatten();
  }
  return gradients;
}

struct MeshCase {
  int64_t replica, data, model;
};

// Two steps, so that what is left over from the first would show in the second.
void expect_exact(const dist::World& world, const MeshCase& c, const std::vector<Ways>& by_rank,
                  const ShardOptions& options) {
  const dist::Mesh mesh(world, {{"replica", c.replica}, {"data", c.data}, {"model", c.model}});
  Experts model;
  const auto sharded = shard_module(*model, mesh, model->units(), options);
  const dist::Group& batch = sharded->groups().batch;
  const auto expected = whole_gradients(by_rank, batch.size());
  const Ways& ways = ways_of(by_rank, batch.rank());
  for (int step = 0; step < 2; ++step) {
    for (size_t i = 0; i < ways.size(); ++i) {
      Experts whole;
      const at::Tensor x_BD = input_BD(batch.rank(), i);
      const at::Tensor sum = model->forward(x_BD, ways[i]);
      EXPECT_EQ(sum.item<float>(), whole->forward(x_BD, ways[i]).item<float>()) << "step " << step;
      sharded->backward(sum);
    }
    sharded->finish_gradients();
    for (const OwnedPart& part : sharded->owned_parts()) {
      const shard::Range range = part.slice.elements;
      const at::Tensor whole = expected.at(part.slice.name).narrow(0, range.start, range.length);
      EXPECT_TRUE(at::equal(part.gradient, whole))
          << part.slice.name << ": " << part.gradient << " for " << whole << ", step " << step;
    }
    sharded->publish();
  }
}

constexpr int kR = kRoot;

// Each by rank, then by microbatch.
const std::vector<std::vector<Ways>> kVariants = {
    {{{0}}, {{1}}},
    {{{0, 1}}, {{1, 0}}},
    {{{0}}, {{0, 1}}},
    {{{0, 1}}, {{1}}},
    {{{kR}}, {{0, kR}}},
    {{{0, 1, 2}}, {{2, 1, 0}}},
    {{{0, 0}}, {{0}}},
    {{{1, 1, 0}}, {{2}}},
    {{{0}, {1}}, {{1}, {0}}},
    {{{0, 1, 2}, {kR}}, {{0, 1, 2}, {2, 1, kR}}},
    {{{0}, {1}}, {{0}, {1}}},
    {{{kR, 0, 1}}, {{0, 1, kR}}},
    {{{0, 1, 0, 2}}, {{1, 0, 1, 0}}, {{2}}},
    {{{0}, {kR}, {2, 1}}, {{1}, {0, kR}, {kR, 2}}, {{2}, {1}, {0}}, {{kR}, {kR}, {kR}}},
};

std::vector<Ways> random_variant(std::mt19937& random) {
  std::vector<Ways> by_rank;
  const size_t microbatches = 1 + random() % 3;
  for (int rank = 0; rank < 4; ++rank) {
    Ways& ways = by_rank.emplace_back(microbatches);
    for (Way& way : ways) {
      way.resize(1 + random() % 4);
      for (int& place : way) place = static_cast<int>(random() % (kNumExperts + 1)) - 1;
    }
  }
  return by_rank;
}

void expect_all_exact(int ranks, const std::vector<MeshCase>& meshes, const std::string& backend,
                      int num_random) {
  test::RunOptions run;
  run.backend = backend;
  test::run_ranks(
      ranks,
      [&](const dist::World& world) {
        std::vector<std::vector<Ways>> variants = kVariants;
        std::mt19937 random(11);
        for (int i = 0; i < num_random; ++i) variants.push_back(random_variant(random));
        for (const MeshCase& mesh : meshes) {
          for (size_t i = 0; i < variants.size(); ++i) {
            for (const auto& [prefetch, release, exact] : {std::array{true, true, false},
                                                           {false, true, false},
                                                           {true, false, false},
                                                           {true, true, true}}) {
              SCOPED_TRACE(core::join("mesh (", mesh.replica, ", ", mesh.data, ", ", mesh.model,
                                      "), variant ", i, ", prefetch ", prefetch,
                                      ", release_after_forward ", release, ", exact ", exact));
              ShardOptions options;
              options.prefetch = prefetch;
              options.release_after_forward = release;
              const auto microbatches = static_cast<int64_t>(variants[i].front().size());
              if (exact) options.exact_sequences = mesh.replica * mesh.data * microbatches;
              expect_exact(world, mesh, variants[i], options);
            }
          }
        }
      },
      run);
}

TEST(UnitOrder, AnyWaysThroughAModuleGiveTheGradientsOfTheWhole) {
  expect_all_exact(2, {{1, 2, 1}, {2, 1, 1}}, "shm", 12);
  expect_all_exact(3, {{1, 3, 1}}, "shm", 6);
  expect_all_exact(4, {{2, 2, 1}, {1, 4, 1}, {1, 2, 2}}, "shm", 6);
}

TEST(UnitOrder, AnyWaysThroughAModuleGiveTheGradientsOfTheWholeOnGloo) {
  expect_all_exact(2, {{1, 2, 1}}, "gloo", 0);
}

// By all ranks, whatever some do meanwhile.
void expect_error(const std::string& expected,
                  const std::function<void(const dist::World&)>& body) {
  test::run_ranks(2, [&](const dist::World& world) {
    try {
      body(world);
      ADD_FAILURE() << "no error";
    } catch (const core::CommError& error) {
      EXPECT_EQ(error.what(), expected);
    }
  });
}

TEST(UnitOrder, ABackwardMoreOnOneRankIsRefused) {
  expect_error(
      "train.ShardedModule: ranks 0 and 1 of group world: expected the same calls, got "
      "finish_gradients() and the end of backward(); call backward() equally often on all ranks of "
      "the mesh",
      [](const dist::World& world) {
        const dist::Mesh mesh(world, {{"data", 2}});
        Experts model;
        const auto sharded = shard_module(*model, mesh, model->units());
        for (int64_t i = 0; i <= world.rank(); ++i) {
          sharded->backward(model->forward(input_BD(0, 0), {0, 1}));
        }
        sharded->finish_gradients();
      });
}

TEST(UnitOrder, UnitsInAnotherOrderOnOneRankAreRefused) {
  expect_error(
      "train.shard_module: ranks 0 and 1 of group world: expected the same units, got unit "
      "0 with expert_0.weight [3, 3] and unit 0 with expert_1.weight [3, 3]; give units in one "
      "order on all ranks",
      [](const dist::World& world) {
        const dist::Mesh mesh(world, {{"replica", 1}, {"data", 2}});
        Experts model;
        auto units = model->units();
        if (world.rank() == 1) std::swap(units[0], units[1]);
        shard_module(*model, mesh, units);
      });
}

}  // namespace
}  // namespace weft::train
