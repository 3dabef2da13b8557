// Dropout in training: the same elements on every mesh and with any number of microbatches.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/models/model_files.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"
#include "weft/train/trainer/run_optimizer.h"
#include "weft/train/trainer/train_step.h"

namespace weft::train {
namespace {

constexpr int64_t kSequences = 8, kTokens = 6, kDropoutSteps = 4;

struct Options {
  double dropout = 0;
  /// Of adapters beside frozen weights; below 0: all weights train.
  double lora_dropout = -1;
  bool recomputes = false;
  uint64_t seed = 5;
};

Microbatch dropout_rows(int64_t step, int64_t first, int64_t count) {
  const at::Tensor b = at::arange(first, first + count, at::kLong).unsqueeze(1);
  const at::Tensor t = at::arange(kTokens + 1, at::kLong).unsqueeze(0);
  const at::Tensor text = (11 * b + 3 * t * t + (b * t).remainder(5)).remainder(100);
  Microbatch part;
  part.tokens.ids_BT = text.narrow(1, 0, kTokens).contiguous();
  part.tokens.step = static_cast<uint64_t>(step);
  part.tokens.first_token = first * kTokens;
  part.targets_BT = text.narrow(1, 1, kTokens).contiguous();
  part.num_targets = part.targets_BT.numel();
  return part;
}

std::shared_ptr<models::CausalLM> make_model(const Options& options, const dist::Group& group) {
  const bool adapts = options.lora_dropout >= 0;
  models::LoadOptions load;
  load.is_trainable = !adapts;
  const auto file = io::TensorFile::open(test::model_data("families/llama"));
  const auto model = models::load_model(*file, group, load).model;
  if (adapts) {
    nn::LoraOptions lora;
    lora.seed = options.seed;
    lora.dropout = options.lora_dropout;
    nn::apply_lora(*model, {"q_proj", "v_proj", "o_proj", "down_proj", "lm_head"}, lora);
    model->train();
  }
  models::TrainingOptions training;
  training.checkpointed.assign(model->blocks().size(), options.recomputes);
  training.dropout = options.dropout;
  training.dropout_seed = options.seed;
  model->set_training(training);
  return model;
}

// Losses of the steps, and of an evaluation at last.
std::vector<double> losses_of(const dist::Mesh& mesh, int64_t microbatches,
                              const Options& options) {
  const auto model = make_model(options, mesh_groups(mesh).model);
  const auto sharded = shard_module(*model, mesh, model->blocks());
  TrainConfig config;
  config.optimizer.lr = 1e-2;
  const auto optimizer = make_run_optimizer(config, *sharded);
  const dist::Group& batch = sharded->groups().batch;
  const int64_t count = kSequences / batch.size() / microbatches;
  std::vector<double> losses;
  for (int64_t step = 0; step < kDropoutSteps; ++step) {
    std::vector<Microbatch> parts;
    for (int64_t m = 0; m < microbatches; ++m) {
      parts.push_back(dropout_rows(step, (batch.rank() * microbatches + m) * count, count));
    }
    losses.push_back(
        compute_gradients(*sharded, language_model_loss(*model), parts, step + 1).loss);
    optimizer->step(1e-2, 1);
    sharded->publish();
  }
  const at::NoGradGuard no_grad;
  model->eval();
  losses.push_back(language_model_loss(*model)(dropout_rows(0, 0, kSequences)).item<double>());
  return losses;
}

struct DropoutCase {
  int64_t replica, data, model;
};

void expect_near_steps(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-4 * expected[i]) << "step " << i;
  }
}

const std::vector<Options> kKinds = {{0.2}, {0, 0.3}, {0.1, 0.3}};

std::vector<double> alone(const Options& options, int64_t microbatches = 1) {
  std::vector<double> losses;
  test::run_ranks(1, [&](const dist::World& world) {
    losses = losses_of(dist::Mesh(world, {{"model", 1}}), microbatches, options);
  });
  return losses;
}

TEST(RunDropout, GivesTheSameLossesWithAnyMicrobatches) {
  for (const Options& options : kKinds) {
    const auto expected = alone(options);
    for (const int64_t microbatches : {2, 4})
      expect_near_steps(alone(options, microbatches), expected);
  }
}

// What one rank has found is told to the ranks, which run the test anew, by a variable.
constexpr char kVariable[] = "WEFT_TEST_LOSSES";

test::RunOptions with_losses_of_one_rank() {
  test::RunOptions options;
  std::ostringstream text;
  text.precision(17);
  for (const Options& kind : kKinds) {
    for (const double loss : alone(kind)) text << loss << ' ';
  }
  options.variables = {{kVariable, text.str()}};
  return options;
}

std::vector<std::vector<double>> told_losses() {
  const char* told = std::getenv(kVariable);
  std::istringstream text(told == nullptr ? "" : told);
  std::vector<std::vector<double>> losses(kKinds.size(), std::vector<double>(kDropoutSteps + 1));
  for (auto& kind : losses) {
    for (double& loss : kind) text >> loss;
  }
  EXPECT_TRUE(text);
  return losses;
}

TEST(RunDropout, GivesTheSameLossesOnTwoRanksOfAnyAxis) {
  const test::RunOptions run = with_losses_of_one_rank();
  const auto body = [&](const dist::World& world) {
    const auto expected = told_losses();
    for (const DropoutCase& c : {DropoutCase{1, 1, 2}, {1, 2, 1}, {2, 1, 1}}) {
      const dist::Mesh mesh(world, {{"replica", c.replica}, {"data", c.data}, {"model", c.model}});
      for (const int64_t microbatches : {1, 2, 4}) {
        SCOPED_TRACE(core::join("mesh (", c.replica, ", ", c.data, ", ", c.model, "), ",
                                microbatches, " microbatches"));
        for (size_t i = 0; i < kKinds.size(); ++i) {
          expect_near_steps(losses_of(mesh, microbatches, kKinds[i]), expected[i]);
        }
      }
    }
  };
  test::run_ranks(2, body, run);
}

TEST(RunDropout, IsDrawnBySeedAndStepAndDoesNothingAtRateZero) {
  EXPECT_EQ(alone({0.2}), alone({0.2}));
  Options other = {0.2};
  other.seed = 6;
  EXPECT_NE(alone({0.2}), alone(other));
  EXPECT_NE(alone({0.2}), alone({}));
  EXPECT_NE(alone({0, 0.3}), alone({0, 0}));
  // The first loss is of the weights that were loaded: without dropout it is the evaluation's.
  const auto plain = alone({});
  EXPECT_GT(std::abs(alone({0.2})[0] - plain[0]), 1e-4);
}

TEST(RunDropout, IsTheSameBitsWhereActivationsAreComputedAgain) {
  for (Options options : kKinds) {
    const auto kept = alone(options);
    options.recomputes = true;
    EXPECT_EQ(alone(options), kept);
  }
}

TEST(RunDropout, IsOffInEvaluation) {
  const auto model = make_model({0.5, 0.5}, {});
  const at::NoGradGuard no_grad;
  const Microbatch part = dropout_rows(0, 0, 2);
  const auto loss = [&] { return language_model_loss(*model)(part).item<double>(); };
  const double dropped = loss();
  model->eval();
  const double whole = loss();
  EXPECT_NE(whole, dropped);
  model->set_training({});
  EXPECT_EQ(loss(), whole);
}

}  // namespace
}  // namespace weft::train
