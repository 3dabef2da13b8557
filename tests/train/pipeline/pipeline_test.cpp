#include "weft/train/pipeline/pipeline.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/support/run_ranks.h"
#include "weft/models/load/deferred_model.h"
#include "weft/train/pipeline/stage_layers.h"
#include "weft/train/trainer/run_optimizer.h"
#include "weft/train/trainer/train_step.h"

// Shape letters: B sequences, T tokens, D width, V vocabulary.

namespace weft::train {
namespace {

constexpr int64_t kPipelineBatch = 2, kPipelineTokens = 6, kPipelineWidth = 16, kPipelineVocab = 30,
                  kPipelineSteps = 4;

models::ModelConfig pipeline_config(bool is_tied) {
  models::ModelConfig config;
  config.family = "qwen3";
  config.vocab_size = kPipelineVocab;
  config.width = kPipelineWidth;
  config.num_layers = 4;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 4;
  config.ffn_width = 12;
  config.max_positions = 32;
  config.head_norms = models::HeadNorms::kEachHead;
  config.is_tied = is_tied;
  return config;
}

// Of the whole batch, `count` microbatches from number `first`; some targets take no part.
std::vector<Microbatch> microbatches_of(int64_t step, int64_t first, int64_t count) {
  std::vector<Microbatch> parts;
  for (int64_t m = first; m < first + count; ++m) {
    const at::Tensor text =
        (at::arange(kPipelineBatch * (kPipelineTokens + 1), at::kLong).square() + 11 * m + 5 * step)
            .remainder(kPipelineVocab);
    const at::Tensor text_BT = text.view({kPipelineBatch, kPipelineTokens + 1});
    Microbatch part;
    part.tokens.ids_BT = text_BT.narrow(1, 0, kPipelineTokens).contiguous();
    part.targets_BT = text_BT.narrow(1, 1, kPipelineTokens).clone();
    part.targets_BT.narrow(1, 0, m % kPipelineTokens).fill_(-100);
    part.num_targets = kPipelineBatch * (kPipelineTokens - m % kPipelineTokens);
    parts.push_back(std::move(part));
  }
  return parts;
}

struct RunOptions {
  bool is_tied = true;
  at::ScalarType dtype = at::kFloat;
  bool checkpoints = false;
  int64_t microbatches = 6;
};

// A model in training on a mesh with the axes data, pipe and model.
class StageRun {
 public:
  StageRun(const dist::World& world, std::vector<dist::Axis> axes, const RunOptions& options)
      : options_(options), mesh_(world, std::move(axes)) {
    const MeshGroups groups = mesh_groups(mesh_);
    const models::ModelConfig config = pipeline_config(options.is_tied);
    models::InitOptions init;
    init.seed = 5;
    init.std = 0.3;
    init.layers = layers_of_stage(balance_layers(config.num_layers, groups.pipe.size(), {}),
                                  groups.pipe.rank());
    auto deferred = models::defer_model(config, groups.model, init);
    model_ = deferred.model;
    models::TrainingOptions training;
    training.checkpointed.assign(model_->blocks().size(), options.checkpoints);
    model_->set_training(training);
    ShardOptions shard;
    shard.dtype = options.dtype;
    shard.values = deferred.values;
    sharded_ = shard_module(*model_, mesh_, model_->blocks(), shard);
    TrainConfig train;
    optimizer_ = make_run_optimizer(train, *sharded_);
  }

  StageModel stage() { return language_model_stage(*model_, sharded_->groups().pipe); }
  ShardedModule& sharded() { return *sharded_; }
  models::CausalLM& model() { return *model_; }
  std::vector<Microbatch> microbatches(int64_t step) const {
    const dist::Group& batch = sharded_->groups().batch;
    const int64_t own = options_.microbatches / batch.size();
    return microbatches_of(step, batch.rank() * own, own);
  }
  StepResult step(int64_t step) {
    const StepResult result = compute_gradients(*sharded_, stage(), microbatches(step), step + 1);
    optimizer_->step(1e-2, clip_scale(result.gradient_norm, 1));
    sharded_->publish();
    return result;
  }
  // Losses and norms of some steps.
  std::vector<double> numbers() {
    std::vector<double> all;
    for (int64_t i = 0; i < kPipelineSteps; ++i) {
      const StepResult result = step(i);
      all.push_back(result.loss);
      all.push_back(result.gradient_norm);
    }
    return all;
  }
  double evaluate(const std::vector<Microbatch>& microbatches) {
    const dist::Group& pipe = sharded_->groups().pipe;
    at::Tensor sum = at::full({1}, evaluate_pipeline(stage(), microbatches, pipe), at::kDouble);
    sharded_->release();
    pipe.all_reduce(sum);
    return sum.item<double>();
  }

 private:
  RunOptions options_;
  dist::Mesh mesh_;
  std::shared_ptr<models::CausalLM> model_;
  std::unique_ptr<ShardedModule> sharded_;
  std::unique_ptr<Optimizer> optimizer_;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& expected,
                 double relative) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], relative * expected[i]) << i;
  }
}

TEST(Pipeline, TrainsTiedAndUntiedModelsAsDataRanksDo) {
  const auto body = [](const dist::World& world) {
    for (const bool is_tied : {true, false}) {
      SCOPED_TRACE(is_tied);
      RunOptions options;
      options.is_tied = is_tied;
      const auto expected = StageRun(world, {{"data", 2}}, options).numbers();
      EXPECT_LT(expected[2 * kPipelineSteps - 2], expected[0]);
      expect_near(StageRun(world, {{"pipe", 2}}, options).numbers(), expected, 1e-5);
    }
  };
  for (const std::string backend : {"shm", "gloo"}) test::run_ranks(2, body, {.backend = backend});
}

TEST(Pipeline, SendsActivationsInTheTypeThatIsComputedIn) {
  test::run_ranks(2, [](const dist::World& world) {
    RunOptions options;
    options.dtype = at::kBFloat16;
    options.is_tied = false;
    const auto expected = StageRun(world, {{"data", 2}}, options).numbers();
    StageRun run(world, {{"pipe", 2}}, options);
    expect_near(run.numbers(), expected, 2e-2);
    EXPECT_EQ(run.sharded().groups().pipe.traffic().send.bytes,
              static_cast<uint64_t>(kPipelineSteps * options.microbatches * kPipelineBatch *
                                    kPipelineTokens * kPipelineWidth * 2));
  });
}

TEST(Pipeline, SendsEachMicrobatchOnceInEitherDirection) {
  test::run_ranks(4, [](const dist::World& world) {
    for (const int64_t microbatches : {1, 2, 7}) {
      RunOptions options;
      options.is_tied = false;
      options.microbatches = microbatches;
      StageRun run(world, {{"pipe", 4}}, options);
      // The group of all ranks is the world's own, which goes on counting.
      const dist::OperationTraffic before = run.sharded().groups().pipe.traffic().send;
      run.step(0);
      const bool is_end = world.rank() == 0 || world.rank() == 3;
      const auto calls = static_cast<uint64_t>((is_end ? 1 : 2) * microbatches);
      const dist::OperationTraffic& send = run.sharded().groups().pipe.traffic().send;
      EXPECT_EQ(send.calls - before.calls, calls);
      EXPECT_EQ(send.bytes - before.bytes,
                calls * kPipelineBatch * kPipelineTokens * kPipelineWidth * 4);
    }
  });
}

// Both stages have the table, its gradient is the sum of both, and it counts once.
TEST(Pipeline, KeepsBothTiedEmbeddingsEqualBitForBit) {
  test::run_ranks(4, [](const dist::World& world) {
    for (const std::string axis : {"data", "replica"}) {
      StageRun run(world, {{axis, 2}, {"pipe", 2}}, {});
      run.numbers();
      const dist::Group& pipe = run.sharded().groups().pipe;
      int shared = 0;
      for (const OwnedPart& part : run.sharded().owned_parts()) {
        if (part.slice.name != "model.embed_tokens.weight") {
          EXPECT_FALSE(part.slice.is_copy) << part.slice.name;
          continue;
        }
        ++shared;
        EXPECT_EQ(part.slice.is_copy, pipe.rank() == 1);
        const at::Tensor both = pipe.all_gather(part.master.view({1, -1}), 0);
        EXPECT_TRUE(at::equal(both[0], both[1]));
      }
      EXPECT_EQ(shared, 1);
    }
  });
}

TEST(Pipeline, ComputingActivationsAgainChangesNoBit) {
  test::run_ranks(4, [](const dist::World& world) {
    RunOptions options;
    const auto expected = StageRun(world, {{"data", 2}, {"pipe", 2}}, options).numbers();
    options.checkpoints = true;
    EXPECT_EQ(StageRun(world, {{"data", 2}, {"pipe", 2}}, options).numbers(), expected);
  });
}

// More microbatches than the first stage may be ahead.
TEST(Pipeline, EvaluatesAsTheWholeDoes) {
  test::run_ranks(2, [](const dist::World& world) {
    const auto microbatches = microbatches_of(0, 0, 19);
    const double expected = StageRun(world, {{"data", 2}}, {}).evaluate(microbatches);
    StageRun run(world, {{"pipe", 2}}, {});
    EXPECT_NEAR(run.evaluate(microbatches), expected, 1e-5 * expected);
    // And training goes on.
    run.step(0);
    EXPECT_NEAR(StageRun(world, {{"pipe", 2}}, {}).evaluate(microbatches), expected,
                1e-5 * expected);
  });
}

TEST(Pipeline, ALossThatIsNotFiniteNamesTheLastStageOnAllRanks) {
  test::run_ranks(2, [](const dist::World& world) {
    StageRun run(world, {{"pipe", 2}}, {});
    StageModel broken = run.stage();
    broken.forward = [forward = broken.forward, &world](const Microbatch& microbatch,
                                                        const at::Tensor& x) {
      const at::Tensor y = forward(microbatch, x);
      return world.rank() == 1 ? y * std::nan("") : y;
    };
    const std::string message = weft::testing::error_text(
        [&] { compute_gradients(run.sharded(), broken, run.microbatches(0), 3); });
    EXPECT_EQ(message.rfind("ConfigError: train: step 3: the loss is nan (first on rank 1)", 0), 0U)
        << message;
  });
}

TEST(Pipeline, AStageWithoutEmbeddingNeedsWhatTheOneBeforeGives) {
  test::run_ranks(2, [](const dist::World& world) {
    StageRun run(world, {{"pipe", 2}}, {});
    const auto microbatch = run.microbatches(0).front();
    const std::string message = weft::testing::error_text([&] {
      const at::Tensor x = run.model().forward(microbatch.tokens);
      run.model().loss_sum(x, microbatch.targets_BT);
    });
    EXPECT_EQ(message, world.rank() == 0
                           ? "ConfigError: models.CausalLM: head: the stage of layers "
                             "0 to 2 of 4 has none"
                           : "ConfigError: models.CausalLM: embedding: the stage of "
                             "layers 2 to 4 of 4 has none");
    run.sharded().release();
  });
}

// One factor for each stage: y = x * w.
class StageFactorImpl : public torch::nn::Module {
 public:
  explicit StageFactorImpl(int64_t stage)
      : weight_(register_parameter(core::join("weight_", stage), at::full({kPipelineWidth}, 1.5))) {
  }
  at::Tensor forward(const at::Tensor& x) { return x * weight_; }

 private:
  at::Tensor weight_;
};
TORCH_MODULE(StageFactor);

// Inputs of microbatches that are in memory, counted by their memory.
class AliveInputs {
 public:
  explicit AliveInputs(int64_t limit) : limit_(limit) {}

  at::Tensor make() {
    // What has received the last one lets go of it a moment after it was taken, on its own thread.
    wait_for_fewer_than(limit_);
    most_ = std::max<int64_t>(most_, ++alive_);
    const auto memory = std::make_shared<std::vector<float>>(kPipelineWidth);
    return at::from_blob(
        memory->data(), {kPipelineWidth}, [this, memory](void*) { --alive_; }, at::kFloat);
  }
  int64_t alive() const {
    wait_for_fewer_than(1);
    return alive_;
  }
  int64_t most() const { return most_; }

 private:
  void wait_for_fewer_than(int64_t limit) const {
    for (int i = 0; i < 5000 && alive_ >= limit; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  int64_t limit_;
  std::atomic<int64_t> alive_ = 0;
  int64_t most_ = 0;
};

TEST(Pipeline, KeepsInputsOfAsManyMicrobatchesAsStagesAreAheadAtMost) {
  test::run_ranks(3, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"pipe", 3}});
    StageFactor factor(world.rank());
    const auto sharded = shard_module(*factor, mesh, {factor.ptr()});
    AliveInputs inputs(3 - world.rank());
    StageModel stage;
    stage.forward = [&](const Microbatch& microbatch, const at::Tensor& x) {
      const at::Tensor y = factor->forward(x.defined() ? x : microbatch.targets_BT);
      return world.rank() == 2 ? y.sum() : y;
    };
    stage.make_input = [&](const Microbatch&) { return inputs.make(); };
    std::vector<Microbatch> microbatches(8);
    for (Microbatch& each : microbatches) each.targets_BT = at::ones({kPipelineWidth});
    const double loss = run_pipeline(*sharded, stage, microbatches, 4);
    EXPECT_DOUBLE_EQ(loss, world.rank() == 2 ? 8 * kPipelineWidth * std::pow(1.5, 3) / 4 : 0);
    EXPECT_EQ(inputs.alive(), 0);
    EXPECT_EQ(inputs.most(), world.rank() == 0 ? 0 : 3 - world.rank());
    sharded->finish_gradients();
    // d/dw of a product of three factors, for each of D elements and stages.
    EXPECT_NEAR(sharded->gradient_norm(), 8 * 1.5 * 1.5 / 4 * std::sqrt(3.0 * kPipelineWidth),
                1e-3);
  });
}

}  // namespace
}  // namespace weft::train
