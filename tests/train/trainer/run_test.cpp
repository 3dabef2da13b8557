#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/nn/parameter_part.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/io/load_tensor.h"
#include "weft/models/load/deferred_model.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/train/pipeline/stage_layers.h"
#include "weft/train/trainer/run_optimizer.h"
#include "weft/train/trainer/train_step.h"

// Twenty steps on every mesh against plain PyTorch's (tools/make_training_run_goldens.py).

namespace weft::train {
namespace {

constexpr int64_t kRunSteps = 20, kRunSequences = 48, kRunTokens = 8, kRunVocab = 40;
const std::string kFolder = WEFT_SOURCE_DIR "/tests/train/data/llama_run";

// As the golden's `batch`.
Microbatch rows(int64_t step, int64_t first, int64_t count) {
  const at::Tensor b = at::arange(first, first + count, at::kLong).unsqueeze(1);
  const at::Tensor t = at::arange(kRunTokens + 1, at::kLong).unsqueeze(0);
  const at::Tensor text =
      (7 * step + 13 * b + 3 * t * t + (b * t).remainder(5)).remainder(kRunVocab);
  Microbatch part;
  part.tokens.ids_BT = text.narrow(1, 0, kRunTokens).contiguous();
  part.targets_BT = at::where(t.narrow(1, 0, kRunTokens) < b.remainder(kRunTokens + 1),
                              at::full({}, -100, at::kLong), text.narrow(1, 1, kRunTokens));
  part.num_targets = (part.targets_BT >= 0).sum().item<int64_t>();
  return part;
}

struct RunCase {
  int64_t replica, data, model;
  // Layers of each stage; empty: one stage.
  std::vector<int64_t> stages = {};
  bool sequence_parallel = false;

  dist::Mesh mesh(const dist::World& world) const {
    return {world,
            {{"replica", replica},
             {"data", data},
             {"pipe", std::max<int64_t>(1, std::ssize(stages))},
             {"model", model}}};
  }
};

std::vector<Microbatch> own_part(const dist::Group& batch, int64_t step, int64_t microbatches) {
  const int64_t own = kRunSequences / batch.size();
  const int64_t count = own / microbatches;
  std::vector<Microbatch> parts;
  for (int64_t m = 0; m < microbatches; ++m) {
    parts.push_back(rows(step, batch.rank() * own + m * count, count));
  }
  return parts;
}

void expect_golden_parameters(ShardedModule& sharded, models::CausalLM& model,
                              const io::TensorFile& golden) {
  for (const auto& unit : sharded.units()) unit->gather();
  for (const auto& info : nn::describe_parameters(model)) {
    const at::Tensor whole = io::load_tensor(golden, info.name, at::kFloat);
    const at::Tensor expected = test::part_of(whole, info, sharded.groups().model.rank());
    EXPECT_LT((info.tensor - expected).abs().max().item<double>(), 1e-4) << info.name;
  }
  sharded.release();
}

TrainConfig golden_config() {
  TrainConfig config;
  config.optimizer.lr = 5e-3;
  config.schedule.name = "constant";
  config.train.steps = kRunSteps;
  return config;
}

void expect_run(const dist::World& world, const RunCase& c, int64_t microbatches,
                ShardOptions options) {
  SCOPED_TRACE(core::join("mesh (", c.replica, ", ", c.data, ", ", c.model, "), stages ",
                          core::list_text(c.stages), ", ", microbatches, " microbatches",
                          c.sequence_parallel ? ", sequences cut" : ""));
  const auto golden = io::TensorFile::open(kFolder + "/run.safetensors");
  const at::Tensor losses = io::load_tensor(*golden, "losses", at::kDouble);
  const at::Tensor norms = io::load_tensor(*golden, "norms", at::kDouble);
  const dist::Mesh mesh = c.mesh(world);
  const MeshGroups groups = mesh_groups(mesh);
  models::LoadOptions load;
  load.is_trainable = true;
  if (!c.stages.empty()) load.layers = layers_of_stage(c.stages, groups.pipe.rank());
  const auto model =
      models::load_model(*io::TensorFile::open(kFolder + "/model"), groups.model, load).model;
  models::TrainingOptions training;
  training.sequence_parallel = c.sequence_parallel;
  model->set_training(training);
  options.partial_gradients = model->partial_parameters();
  const auto sharded = shard_module(*model, mesh, model->blocks(), options);
  const auto optimizer = make_run_optimizer(golden_config(), *sharded);
  for (int64_t step = 0; step < kRunSteps; ++step) {
    const auto parts = own_part(sharded->groups().batch, step, microbatches);
    const StepResult result =
        compute_gradients(*sharded, language_model_stage(*model, groups.pipe), parts, step + 1);
    optimizer->step(5e-3, clip_scale(result.gradient_norm, 1.0));
    sharded->publish();
    const double loss = losses[step].item<double>();
    const double norm = norms[step].item<double>();
    EXPECT_NEAR(result.loss, loss, 1e-4 * loss) << "step " << step;
    EXPECT_NEAR(result.gradient_norm, norm, 1e-4 * norm) << "step " << step;
  }
  expect_golden_parameters(*sharded, *model, *golden);
}

void expect_runs(int ranks, const std::vector<RunCase>& meshes) {
  test::run_ranks(ranks, [&](const dist::World& world) {
    for (const RunCase& mesh : meshes) {
      for (const int64_t microbatches : {1, 2, 4}) expect_run(world, mesh, microbatches, {});
    }
  });
}

TEST(Run, TwentyStepsAreThoseOfPyTorchOnOneRank) { expect_runs(1, {{1, 1, 1}}); }

TEST(Run, TwentyStepsAreThoseOfPyTorchOnTwoRanks) {
  expect_runs(2, {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}});
}

TEST(Run, TwentyStepsAreThoseOfPyTorchOnThreeRanks) { expect_runs(3, {{1, 3, 1}}); }

TEST(Run, TwentyStepsAreThoseOfPyTorchOnFourRanks) {
  expect_runs(4, {{2, 2, 1}, {2, 1, 2}, {1, 2, 2}});
}

TEST(Run, TwentyStepsAreThoseOfPyTorchWithSequencesCutOverTheModelAxis) {
  expect_runs(2, {{1, 1, 2, {}, true}});
  expect_runs(3, {{1, 1, 3, {}, true}});
  expect_runs(4, {{2, 1, 2, {}, true}, {1, 2, 2, {}, true}, {1, 1, 2, {2, 1}, true}});
}

TEST(Run, TwentyStepsAreThoseOfPyTorchInStages) {
  expect_runs(2, {{1, 1, 1, {2, 1}}, {1, 1, 1, {1, 2}}});
  expect_runs(3, {{1, 1, 1, {1, 1, 1}}});
}

TEST(Run, TwentyStepsAreThoseOfPyTorchInStagesBesideOtherAxes) {
  expect_runs(4, {{1, 1, 2, {2, 1}}, {1, 2, 1, {1, 2}}, {2, 1, 1, {2, 1}}});
}

// Memory of the whole is never written to: the values come one parameter at a time.
TEST(Run, TakesDeferredValuesAsTheModelHasThem) {
  test::run_ranks(2, [](const dist::World& world) {
    const auto file = io::TensorFile::open(kFolder + "/model");
    for (const auto& [data, tp] : {std::pair{2, 1}, {1, 2}}) {
      const dist::Mesh mesh(world, {{"data", data}, {"model", tp}});
      const dist::Group group = mesh_groups(mesh).model;
      models::LoadOptions load;
      load.is_trainable = true;
      const auto loaded = models::load_model(*file, group, load).model;
      const auto deferred = models::defer_model(file, group);
      ShardOptions options;
      options.values = deferred.values;
      const auto expected = shard_module(*loaded, mesh, loaded->blocks());
      const auto got = shard_module(*deferred.model, mesh, deferred.model->blocks(), options);
      const auto expected_parts = expected->owned_parts();
      const auto got_parts = got->owned_parts();
      ASSERT_EQ(got_parts.size(), expected_parts.size());
      for (size_t i = 0; i < got_parts.size(); ++i) {
        EXPECT_EQ(got_parts[i].slice.name, expected_parts[i].slice.name);
        EXPECT_TRUE(at::equal(got_parts[i].master, expected_parts[i].master));
      }
    }
  });
}

TEST(Run, NewModelsBeginAlikeOnEveryMesh) {
  test::run_ranks(2, [](const dist::World& world) {
    models::ModelConfig sizes;
    sizes.family = "qwen3";
    sizes.vocab_size = 19;
    sizes.width = 12;
    sizes.num_layers = 2;
    sizes.num_heads = 3;
    sizes.head_dim = 4;
    sizes.ffn_width = 10;
    sizes.max_positions = 16;
    sizes.head_norms = models::HeadNorms::kEachHead;
    const auto whole = models::make_model(sizes, {}, {7});
    std::map<std::string, at::Tensor> wholes;
    for (const auto& info : nn::describe_parameters(*whole)) wholes[info.name] = info.tensor;
    const auto cut = models::defer_model(sizes, world.group(), {7});
    for (const auto& info : nn::describe_parameters(*cut.model)) {
      const at::Tensor expected = test::part_of(wholes.at(info.name), info, world.rank());
      EXPECT_TRUE(at::equal(cut.values(info.name), expected)) << info.name;
    }
  });
}

TEST(Run, KeepingUnitsGatheredChangesNothing) {
  test::run_ranks(2, [](const dist::World& world) {
    ShardOptions options;
    options.release_after_forward = false;
    expect_run(world, {1, 2, 1}, 2, options);
  });
}

TEST(Run, ALossThatIsNotFiniteNamesStepAndRankAndKeepsTheParameters) {
  test::run_ranks(2, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"data", 2}});
    models::LoadOptions load;
    load.is_trainable = true;
    const auto model =
        models::load_model(*io::TensorFile::open(kFolder + "/model"), {}, load).model;
    const auto sharded = shard_module(*model, mesh, model->blocks());
    const at::Tensor before = sharded->owned_parts().front().master.clone();
    const LossSum broken = [&](const Microbatch& part) {
      const at::Tensor loss = language_model_loss(*model)(part);
      return world.rank() == 1 ? loss * std::nan("") : loss;
    };
    std::string message;
    try {
      compute_gradients(*sharded, broken, own_part(sharded->groups().batch, 0, 1), 17);
    } catch (const core::ConfigError& error) {
      message = error.what();
    }
    EXPECT_EQ(
        message,
        "train: step 17: the loss is nan (first on rank 1), expected a finite number; nothing "
        "of this step was kept: resume with a lower optimizer.lr, more "
        "schedule.warmup_steps or train.clip_norm");
    EXPECT_TRUE(at::equal(sharded->owned_parts().front().master, before));
  });
}

}  // namespace
}  // namespace weft::train
