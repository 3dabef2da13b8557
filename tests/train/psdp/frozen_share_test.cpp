// Frozen weights cut over data: 1/data of their memory, the same bits.
#include "weft/train/psdp/frozen_share.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"
#include "weft/train/trainer/run_optimizer.h"
#include "weft/train/trainer/train_step.h"

namespace weft::train {
namespace {

struct ShareCase {
  int64_t replica, data, model;
  int64_t bits;
};

// A float model, or one whose matrices are packed, with adapters beside some of its layers.
std::shared_ptr<models::CausalLM> adapted(const ShareCase& c, const dist::Group& group) {
  const auto file = io::TensorFile::open(test::model_data("mlx/plain_f32"));
  auto model = models::load_model(*file, group).model;
  if (c.bits > 0) nn::quantize(*model, {quant::Mode::kAffine, c.bits, 32});
  nn::apply_lora(*model, {"q_proj", "down_proj"}, {});
  return model;
}

Microbatch sequences_of_rank(const dist::Group& batch, int64_t microbatch) {
  const at::Tensor b = at::arange(2, at::kLong).unsqueeze(1) + 2 * batch.rank() + 8 * microbatch;
  const at::Tensor t = at::arange(9, at::kLong).unsqueeze(0);
  const at::Tensor text = (13 * b + 3 * t * t + (b * t).remainder(5)).remainder(250);
  Microbatch part;
  part.tokens.ids_BT = text.narrow(1, 0, 8).contiguous();
  part.targets_BT = text.narrow(1, 1, 8).contiguous();
  part.num_targets = part.targets_BT.numel();
  return part;
}

uint64_t frozen_bytes(const ShardedModule& sharded) {
  uint64_t bytes = 0;
  for (const auto& unit : sharded.units()) bytes += unit->frozen_bytes();
  return bytes;
}

// Bytes of memory behind tensors, each memory once.
uint64_t memory_of(const std::vector<at::Tensor>& tensors) {
  std::map<const void*, uint64_t> storages;
  for (const at::Tensor& tensor : tensors) {
    storages[tensor.storage().unsafeGetStorageImpl()] = tensor.storage().nbytes();
  }
  uint64_t bytes = 0;
  for (const auto& [storage, each] : storages) bytes += each;
  return bytes;
}

// What three steps came to.
struct TrainedShares {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> masters;
};

TrainedShares train(const dist::Mesh& mesh, const ShareCase& c, bool cuts_frozen) {
  const auto model = adapted(c, mesh_groups(mesh).model);
  const std::vector<at::Tensor> frozen = frozen_tensors(*model);
  const uint64_t whole = memory_of(frozen);
  ShardOptions options;
  options.shard_frozen = cuts_frozen;
  const auto sharded = shard_module(*model, mesh, model->blocks(), options);
  const auto optimizer = make_run_optimizer(TrainConfig(), *sharded);
  TrainedShares trained;
  for (int64_t step = 0; step < 3; ++step) {
    const dist::Group& batch = sharded->groups().batch;
    const StepResult result =
        compute_gradients(*sharded, language_model_loss(*model),
                          {sequences_of_rank(batch, 0), sequences_of_rank(batch, 1)}, step + 1);
    optimizer->step(1e-2, 1);
    sharded->publish();
    trained.losses.push_back(result.loss);
    trained.norms.push_back(result.gradient_norm);
  }
  for (const OwnedPart& part : sharded->owned_parts()) trained.masters.push_back(part.master);
  const bool is_cut = cuts_frozen && c.data > 1;
  EXPECT_EQ(memory_of(frozen), is_cut ? 0 : whole);
  const auto share = static_cast<double>(whole) / static_cast<double>(c.data);
  EXPECT_NEAR(static_cast<double>(frozen_bytes(*sharded)), is_cut ? share : 0, 0.02 * share);
  return trained;
}

void expect_same_bits(const dist::World& world, const ShareCase& c) {
  SCOPED_TRACE(
      core::join("mesh (", c.replica, ", ", c.data, ", ", c.model, "), ", c.bits, " bits"));
  const dist::Mesh mesh(world, {{"replica", c.replica}, {"data", c.data}, {"model", c.model}});
  const TrainedShares whole = train(mesh, c, false), cut = train(mesh, c, true);
  EXPECT_EQ(cut.losses, whole.losses);
  EXPECT_EQ(cut.norms, whole.norms);
  EXPECT_LT(whole.losses.back(), whole.losses.front());
  ASSERT_EQ(cut.masters.size(), whole.masters.size());
  for (size_t i = 0; i < cut.masters.size(); ++i) {
    EXPECT_TRUE(at::equal(cut.masters[i], whole.masters[i])) << i;
  }
}

void expect_all_same_bits(int ranks, const std::vector<ShareCase>& cases) {
  test::run_ranks(ranks, [&](const dist::World& world) {
    for (const ShareCase& each : cases) expect_same_bits(world, each);
  });
}

TEST(FrozenShare, GivesTheSameBitsOnTwoRanks) {
  expect_all_same_bits(2, {{1, 2, 1, 0}, {1, 2, 1, 4}, {2, 1, 1, 4}});
}

TEST(FrozenShare, GivesTheSameBitsOnThreeRanks) { expect_all_same_bits(3, {{1, 3, 1, 4}}); }

TEST(FrozenShare, GivesTheSameBitsOnFourRanks) {
  expect_all_same_bits(4, {{2, 2, 1, 0}, {1, 2, 2, 4}, {1, 4, 1, 8}});
}

// What is gathered at a time is a block, the next one, and what is around the blocks.
TEST(FrozenShare, IsGatheredABlockAtATime) {
  test::run_ranks(2, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"data", 2}});
    const auto model = adapted({1, 2, 1, 4}, {});
    uint64_t block = 0;
    for (const at::Tensor& each : frozen_tensors(*model->blocks().front())) block += each.nbytes();
    const uint64_t all = memory_of(frozen_tensors(*model));
    const uint64_t around = all - block * model->blocks().size();
    ShardOptions options;
    options.shard_frozen = true;
    options.prefetch = false;
    const auto sharded = shard_module(*model, mesh, model->blocks(), options);
    compute_gradients(*sharded, language_model_loss(*model),
                      {sequences_of_rank(sharded->groups().batch, 0)}, 1);
    uint64_t trained = 0;
    for (const auto& unit : sharded->units()) {
      trained += 4 * static_cast<uint64_t>(unit->layout().length());
    }
    EXPECT_LE(sharded->peak_gathered_bytes(), block + around + trained + 8 * 64 * 20);
    EXPECT_GE(sharded->peak_gathered_bytes(), block + around);
  });
}

// With an evaluation between the steps, which gathers without gradients.
TEST(FrozenShare, IsReleasedAfterAnEvaluation) {
  test::run_ranks(2, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"data", 2}});
    const auto model = adapted({1, 2, 1, 4}, {});
    const auto loss = language_model_loss(*model);
    const Microbatch part = sequences_of_rank({}, 0);
    const at::NoGradGuard no_grad;
    const double expected = loss(part).item<double>();
    ShardOptions options;
    options.shard_frozen = true;
    const auto sharded = shard_module(*model, mesh, model->blocks(), options);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(loss(part).item<double>(), expected);
      sharded->release();
      EXPECT_EQ(memory_of(frozen_tensors(*model)), 0U);
    }
  });
}

}  // namespace
}  // namespace weft::train
