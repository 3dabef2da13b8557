// New models of every family that a run's file can name: two steps on many ranks against the same
// steps of the whole model, by autograd and arithmetic alone.
#include "weft/train/config/new_families.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/nn/parameter_part.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/train/config/check_config.h"
#include "weft/train/plan/model_sizes.h"
#include "weft/train/plan/sizes_of_config.h"
#include "weft/train/trainer/run_model.h"
#include "weft/train/trainer/run_optimizer.h"
#include "weft/train/trainer/train_step.h"

namespace weft::train {
namespace {

constexpr int64_t kFamilySteps = 2, kFamilySequences = 4, kFamilyTokens = 7, kFamilyVocab = 33;
constexpr double kRate = 0.1;

// Five layers, so that SmolLM3 has one without rope; heads that no number of ranks divides evenly.
TrainConfig family_config(const std::string& family) {
  TrainConfig config;
  config.model.family = family;
  config.model.vocab_size = kFamilyVocab;
  config.model.hidden_size = 20;
  config.model.num_layers = 5;
  config.model.num_heads = 5;
  config.model.num_kv_heads = 5;
  config.model.intermediate_size = 22;
  config.model.init_std = 0.3;
  config.batch.sequences = kFamilySequences;
  config.batch.sequence_length = kFamilyTokens;
  config.train.steps = kFamilySteps;
  config.train.seed = 3;
  config.optimizer.name = "sgd";
  config.optimizer.momentum = 0;
  config.optimizer.weight_decay = 0;
  complete_model(config);
  return config;
}

Microbatch sequences(int64_t step, int64_t first, int64_t count) {
  const at::Tensor b = at::arange(first, first + count, at::kLong).unsqueeze(1);
  const at::Tensor t = at::arange(kFamilyTokens + 1, at::kLong).unsqueeze(0);
  const at::Tensor text = (5 * step + 11 * b + 3 * t * t + b * t).remainder(kFamilyVocab);
  Microbatch part;
  part.tokens.ids_BT = text.narrow(1, 0, kFamilyTokens).contiguous();
  part.targets_BT = text.narrow(1, 1, kFamilyTokens).contiguous();
  part.num_targets = part.targets_BT.numel();
  return part;
}

struct Steps {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> parameters;
};

double loss_of(models::CausalLM& model, const Microbatch& all) {
  const at::Tensor sum = model.loss_sum(model.forward(all.tokens), all.targets_BT);
  return sum.item<double>() / static_cast<double>(all.num_targets);
}

// Along the gradient the loss rises as the gradient's square says.
void expect_gradient(models::CausalLM& model, const Microbatch& all, double squares) {
  const at::NoGradGuard no_grad;
  const double length = 0.002 / squares;
  const auto move = [&](double by) {
    for (const auto& info : nn::describe_parameters(model))
      info.tensor.add_(info.tensor.grad(), by);
  };
  move(length);
  const double above = loss_of(model, all);
  move(-2 * length);
  const double below = loss_of(model, all);
  move(length);
  EXPECT_NEAR((above - below) / (2 * length), squares, 1e-2 * squares);
}

// Gradient descent without weft's trainer.
Steps steps_of_whole(const TrainConfig& config) {
  models::InitOptions init;
  init.seed = static_cast<uint64_t>(config.train.seed);
  init.std = config.model.init_std;
  const auto model = models::make_model(run_model_config(config, kFamilyVocab), {}, init);
  Steps steps;
  for (int64_t step = 0; step < kFamilySteps; ++step) {
    const Microbatch all = sequences(step, 0, kFamilySequences);
    model->zero_grad();
    const at::Tensor loss = model->loss_sum(model->forward(all.tokens), all.targets_BT) /
                            static_cast<double>(all.num_targets);
    loss.backward();
    const at::NoGradGuard no_grad;
    double squares = 0;
    // A tied head is the embedding and counts once.
    for (const auto& info : nn::describe_parameters(*model)) {
      squares += info.tensor.grad().square().sum().item<double>();
    }
    if (step == 0) expect_gradient(*model, all, squares);
    for (const auto& info : nn::describe_parameters(*model)) {
      info.tensor.sub_(info.tensor.grad(), kRate);
    }
    steps.losses.push_back(loss.item<double>());
    steps.norms.push_back(std::sqrt(squares));
  }
  for (const auto& info : nn::describe_parameters(*model))
    steps.parameters[info.name] = info.tensor;
  return steps;
}

struct FamilyCase {
  int64_t replica, data, model;
  bool sequence_parallel = false;
};

void expect_steps(const dist::World& world, const TrainConfig& config, const FamilyCase& c,
                  const Steps& expected) {
  SCOPED_TRACE(core::join(config.model.family, " on (", c.replica, ", ", c.data, ", ", c.model, ")",
                          c.sequence_parallel ? ", sequences cut" : ""));
  const dist::Mesh mesh(world, {{"replica", c.replica}, {"data", c.data}, {"model", c.model}});
  const auto deferred =
      make_run_model(config, TrainedPart::kAll, kFamilyVocab, mesh_groups(mesh).model);
  models::TrainingOptions training;
  training.sequence_parallel = c.sequence_parallel;
  deferred.model->set_training(training);
  ShardOptions options;
  options.values = deferred.values;
  options.partial_gradients = deferred.model->partial_parameters();
  const auto sharded = shard_module(*deferred.model, mesh, deferred.model->blocks(), options);
  const auto optimizer = make_run_optimizer(config, *sharded);
  const dist::Group& batch = sharded->groups().batch;
  const int64_t own = kFamilySequences / batch.size();
  for (size_t step = 0; step < kFamilySteps; ++step) {
    const auto number = static_cast<int64_t>(step);
    const StepResult result =
        compute_gradients(*sharded, language_model_loss(*deferred.model),
                          {sequences(number, batch.rank() * own, own)}, number + 1);
    EXPECT_NEAR(result.loss, expected.losses[step], 1e-5 * expected.losses[step]);
    EXPECT_NEAR(result.gradient_norm, expected.norms[step], 1e-4 * expected.norms[step]);
    optimizer->step(kRate, 1);
    sharded->publish();
  }
  for (const auto& unit : sharded->units()) unit->gather();
  for (const auto& info : nn::describe_parameters(*deferred.model)) {
    const at::Tensor part =
        test::part_of(expected.parameters.at(info.name), info, sharded->groups().model.rank());
    EXPECT_LT((info.tensor - part).abs().max().item<double>(), 1e-4) << info.name;
  }
  sharded->release();
}

void expect_all_families(int ranks, const std::vector<FamilyCase>& meshes) {
  test::run_ranks(ranks, [&](const dist::World& world) {
    for (const NewFamily& family : kNewFamilies) {
      const TrainConfig config = family_config(std::string(family.name));
      SCOPED_TRACE(family.name);
      const Steps whole = steps_of_whole(config);
      for (const FamilyCase& mesh : meshes) expect_steps(world, config, mesh, whole);
    }
  });
}

TEST(NewFamilies, TrainOnTwoRanksAsOnOne) {
  expect_all_families(2, {{1, 1, 2}, {1, 2, 1}, {1, 1, 2, true}});
}

TEST(NewFamilies, TrainOnThreeRanksAsOnOne) { expect_all_families(3, {{1, 1, 3}}); }

TEST(NewFamilies, TrainOnFourRanksAsOnOne) {
  expect_all_families(4, {{1, 2, 2}, {2, 1, 2}, {1, 1, 4}});
}

// The plain table says of each family what the models' table makes of it, and has all of those
// whose layers need no keys that a run's file lacks and whose files have no fused weights.
TEST(NewFamilies, AreThoseWithoutExpertsAndFusedWeights) {
  std::vector<std::string> names;
  for (const models::FamilyInfo& family : models::families()) {
    const bool needs_keys = family.experts.count_key != nullptr || family.recurrent.has_value() ||
                            models::has_gemma4_layers(family);
    if (!needs_keys && family.fused_rows == models::FusedRows::kNone)
      names.emplace_back(family.name);
  }
  EXPECT_EQ(new_family_names(), names);
  for (const std::string& name : names) {
    const TrainConfig config = family_config(name);
    const ModelSizes planned = sizes_of(config.model);
    EXPECT_EQ(planned, sizes_of(run_model_config(config, kFamilyVocab))) << name;
    int64_t count = 0;
    const auto model = models::make_model(run_model_config(config, kFamilyVocab), {});
    for (const auto& info : nn::describe_parameters(*model)) count += info.tensor.numel();
    EXPECT_EQ(num_parameters(planned), count) << name;
  }
}

}  // namespace
}  // namespace weft::train
