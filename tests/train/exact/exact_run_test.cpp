// train.exact: one hash of the parameters and the same losses on every mesh.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string>

#include "tests/core/error_text.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/core/hash.h"
#include "weft/models/load/deferred_model.h"
#include "weft/models/trains_exactly.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/train/trainer/run_optimizer.h"
#include "weft/train/trainer/train_step.h"

namespace weft::train {
namespace {

constexpr int64_t kExactSteps = 50, kFewSteps = 3;
constexpr int64_t kExactSequences = 12, kExactLength = 9, kExactVocab = 43;

// Which options the model has.
enum class ExactModel : uint8_t { kHeadNormsAndBiases, kWindowsAndScales };

struct ExactRun {
  int64_t replica = 1, data = 1, model = 1, microbatches = 1;
  bool is_exact = true;
  bool recomputes = false;
  int threads = 1;
  int64_t steps = kExactSteps;
  ExactModel of = ExactModel::kHeadNormsAndBiases;

  int64_t together() const { return kExactSequences / (replica * data) / microbatches; }
  dist::Mesh mesh(const dist::World& world) const {
    return {world, {{"replica", replica}, {"data", data}, {"model", model}}};
  }
  int ranks() const { return static_cast<int>(replica * data * model); }
};

// Two kv heads: on three and four ranks they are shared. Odd sizes, biases, norms of heads.
models::ModelConfig sizes_of_run(ExactModel of) {
  models::ModelConfig sizes;
  sizes.family = "qwen3";
  sizes.vocab_size = kExactVocab;
  sizes.width = 20;
  sizes.num_layers = 2;
  sizes.num_heads = 4;
  sizes.num_kv_heads = 2;
  sizes.head_dim = 6;
  sizes.ffn_width = 26;
  sizes.max_positions = kExactLength;
  sizes.is_tied = of == ExactModel::kHeadNormsAndBiases;
  sizes.has_qkv_bias = of == ExactModel::kHeadNormsAndBiases;
  sizes.head_norms = models::HeadNorms::kEachHead;
  if (of == ExactModel::kHeadNormsAndBiases) return sizes;
  sizes.windows = {3, 0};
  sizes.window_rope_base = 500;
  sizes.rope_dims = 4;
  // Shorter than most rows' longest document.
  sizes.rope_scaling.type = nn::RopeType::kDynamic;
  sizes.rope_scaling.factor = 2;
  sizes.rope_scaling.original_positions = 5;
  sizes.has_output_bias = true;
  sizes.has_mlp_bias = true;
  sizes.embedding_scale = 3;
  sizes.attention_scale = 0.3;
  sizes.residual_scale = 0.7;
  sizes.logits_scale = 0.4;
  return sizes;
}

Microbatch rows_of(int64_t step, int64_t first, int64_t count) {
  const at::Tensor b = at::arange(first, first + count, at::kLong).unsqueeze(1);
  const at::Tensor t = at::arange(kExactLength + 1, at::kLong).unsqueeze(0);
  const at::Tensor text =
      (5 * step + 17 * b + 3 * t * t + (b * t).remainder(7)).remainder(kExactVocab);
  Microbatch part;
  part.tokens.ids_BT = text.narrow(1, 0, kExactLength).contiguous();
  // Two documents in a row, the second of another length in each.
  const at::Tensor places = t.narrow(1, 0, kExactLength), last = b.remainder(kExactLength);
  part.tokens.documents_BT = (places > last).to(at::kLong);
  part.tokens.positions_BT = places - part.tokens.documents_BT * (last + 1);
  part.targets_BT = at::where(t.narrow(1, 0, kExactLength) < b.remainder(kExactLength + 1),
                              at::full({}, -100, at::kLong), text.narrow(1, 1, kExactLength));
  part.num_targets = (part.targets_BT >= 0).sum().item<int64_t>();
  return part;
}

std::vector<Microbatch> own_rows(const dist::Group& batch, int64_t step, int64_t microbatches) {
  const int64_t count = kExactSequences / batch.size() / microbatches;
  std::vector<Microbatch> parts;
  for (int64_t m = 0; m < microbatches; ++m) {
    parts.push_back(rows_of(step, (batch.rank() * microbatches + m) * count, count));
  }
  return parts;
}

at::Tensor whole_of(const nn::ParameterInfo& info, const dist::Group& group) {
  if (!info.cut) return info.tensor.detach();
  const at::Tensor shards =
      group.all_gather(info.tensor.detach(), info.cut->dim, info.cut->lengths());
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : info.cut->gather_ranges()) {
    parts.push_back(shards.narrow(info.cut->dim, range.start, range.length));
  }
  return at::cat(parts, info.cut->dim).contiguous();
}

uint64_t hash_of_parameters(ShardedModule& sharded, const models::CausalLM& model) {
  for (const auto& unit : sharded.units()) unit->gather();
  core::HashStream hash;
  for (const auto& info : nn::describe_parameters(model)) {
    const at::Tensor whole = whole_of(info, sharded.groups().model).contiguous();
    hash.add(std::as_bytes(
        std::span(whole.const_data_ptr<float>(), static_cast<size_t>(whole.numel()))));
  }
  sharded.release();
  return hash.value();
}

struct RunResult {
  // A loss and a norm for each step.
  std::vector<double> numbers;
  uint64_t parameters = 0;

  // Every digit.
  std::string text() const {
    std::string all = std::to_string(parameters);
    for (const double number : numbers) all += core::join(' ', std::bit_cast<uint64_t>(number));
    return all;
  }
};

RunResult result_of(const dist::World& world, const ExactRun& run) {
  const dist::Mesh mesh = run.mesh(world);
  at::set_num_threads(run.threads);
  const auto deferred =
      models::defer_model(sizes_of_run(run.of), mesh_groups(mesh).model, {3, 0.3});
  const auto model = deferred.model;
  models::TrainingOptions training;
  training.checkpointed.assign(model->blocks().size(), run.recomputes);
  model->set_training(training);
  if (run.is_exact) dynamic_cast<models::TrainsExactly&>(*model).train_exactly();
  ShardOptions options;
  options.values = deferred.values;
  options.exact_sequences = run.is_exact ? kExactSequences : 0;
  options.exact_together = run.together();
  const auto sharded = shard_module(*model, mesh, model->blocks(), options);
  TrainConfig config;
  const auto optimizer = make_run_optimizer(config, *sharded);
  RunResult told;
  for (int64_t step = 0; step < run.steps; ++step) {
    const auto parts = own_rows(sharded->groups().batch, step, run.microbatches);
    const StepResult result = compute_gradients(
        *sharded, language_model_stage(*model, sharded->groups().pipe), parts, step + 1);
    optimizer->step(5e-3, clip_scale(result.gradient_norm, 1.0));
    sharded->publish();
    told.numbers.insert(told.numbers.end(), {result.loss, result.gradient_norm});
  }
  told.parameters = hash_of_parameters(*sharded, *model);
  return told;
}

std::string told_of(const dist::World& world, const ExactRun& run) {
  return result_of(world, run).text();
}

RunResult result_of_one_rank(const ExactRun& run) {
  RunResult told;
  test::run_ranks(1, [&](const dist::World& world) { told = result_of(world, run); });
  return told;
}

std::string told_by_one_rank(const ExactRun& run) { return result_of_one_rank(run).text(); }

// What one rank has found is told to the ranks, which run the test anew, by a variable.
constexpr char kTold[] = "WEFT_TEST_TOLD";

void expect_told(const std::string& expected, const std::vector<ExactRun>& runs,
                 test::RunOptions options = {.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}}) {
  options.variables.emplace_back(kTold, expected);
  test::run_ranks(
      runs.front().ranks(),
      [&](const dist::World& world) {
        const char* told = std::getenv(kTold);
        ASSERT_NE(told, nullptr);
        for (const ExactRun& run : runs) {
          EXPECT_EQ(told_of(world, run), told)
              << "mesh (" << run.replica << ", " << run.data << ", " << run.model << "), "
              << run.microbatches << " microbatches";
        }
      },
      options);
}

TEST(ExactRun, FiftyStepsHaveTheSameBitsOnEveryMesh) {
  const std::string expected = told_by_one_rank({});
  EXPECT_EQ(told_by_one_rank({1, 1, 1, 12}), expected);
  EXPECT_EQ(told_by_one_rank({1, 1, 1, 2, true, true, 2}), expected);
  expect_told(expected, {{2, 1, 1, 2}, {1, 2, 1, 3}, {1, 1, 2, 1}});
  expect_told(expected, {{1, 3, 1, 4}, {1, 1, 3, 2}});
  expect_told(expected, {{2, 2, 1, 3}, {2, 1, 2, 2}, {1, 1, 4, 1}});
}

// A few steps of one rank, on other meshes. The ranks' collectives are compared, one by one.
ExactRun few_steps(ExactModel of, int64_t replica = 1, int64_t data = 1, int64_t model = 1) {
  ExactRun run{replica, data, model};
  run.steps = kFewSteps;
  run.of = of;
  return run;
}

TEST(ExactRun, RanksCallTheSameCollectivesAndOptionsHaveTheSameBits) {
  for (const ExactModel of : {ExactModel::kHeadNormsAndBiases, ExactModel::kWindowsAndScales}) {
    const std::string expected = told_by_one_rank(few_steps(of));
    expect_told(expected, {few_steps(of, 1, 1, 3)}, {});
    expect_told(expected, {few_steps(of, 1, 2, 2), few_steps(of, 2, 2, 1)}, {});
  }
}

TEST(ExactRun, GlooHasTheSameBits) {
  const std::string expected = told_by_one_rank(few_steps(ExactModel::kWindowsAndScales));
  expect_told(expected, {few_steps(ExactModel::kWindowsAndScales, 1, 2, 2)}, {.backend = "gloo"});
}

TEST(ExactRun, GivesWhatUsualStepsGive) {
  for (const ExactModel of : {ExactModel::kHeadNormsAndBiases, ExactModel::kWindowsAndScales}) {
    ExactRun run = few_steps(of);
    run.steps = 30;
    const std::vector<double> exact = result_of_one_rank(run).numbers;
    run.is_exact = false;
    const std::vector<double> usual = result_of_one_rank(run).numbers;
    ASSERT_EQ(exact.size(), usual.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(exact[i], usual[i], 1e-4 * std::abs(usual[i])) << i;
    }
    // Steps were taken: the norm of the gradient has fallen.
    EXPECT_LT(usual.back(), 0.8 * usual[1]);
  }
}

// So the test can fail: the usual sums depend on the mesh.
TEST(ExactRun, UsualStepsDependOnTheMesh) {
  const std::string usual = told_by_one_rank({1, 1, 1, 1, false});
  test::RunOptions options;
  options.variables = {{kTold, usual}};
  test::run_ranks(
      2,
      [&](const dist::World& world) {
        for (const ExactRun& run : {ExactRun{1, 1, 2, 1, false}, ExactRun{1, 2, 1, 1, false}}) {
          EXPECT_NE(told_of(world, run), std::getenv(kTold));
        }
      },
      options);
}

TEST(ExactRun, RefusesModelsWithOtherSums) {
  const auto complaint = [](models::ModelConfig config) {
    return weft::testing::error_text([&] {
      dynamic_cast<models::TrainsExactly&>(*models::make_model(config, {}, {})).train_exactly();
    });
  };
  models::ModelConfig config = sizes_of_run(ExactModel::kHeadNormsAndBiases);
  config.gating.activation = nn::Activation::kGeluTanh;
  config.logits_cap = 30;
  EXPECT_EQ(complaint(config),
            "ConfigError: models: training with the same bits on any number of ranks: qwen3 with "
            "gelu in feed-forward layers, a cap of the logits, expected a model without; leave "
            "train.exact out");
}

TEST(ExactRun, RefusesDocumentsThatComeBackAndSequencesWithoutAnOrder) {
  const auto model = models::make_model(sizes_of_run(ExactModel::kHeadNormsAndBiases), {}, {});
  dynamic_cast<models::TrainsExactly&>(*model).train_exactly();
  models::TokenBatch batch{at::zeros({1, 3}, at::kLong),
                           at::tensor({0, 1, 0}, at::kLong).view({1, 3})};
  const auto complaint = [&] { return weft::testing::error_text([&] { model->forward(batch); }); };
  EXPECT_EQ(complaint(),
            "ConfigError: models: training with the same bits on any number of ranks: a document "
            "whose tokens do not lie together, expected each one's in one run; number them anew, "
            "or leave train.exact out");
  batch = {at::zeros({2, 3}, at::kLong)};
  EXPECT_EQ(complaint(),
            "ShapeError: models: training with the same bits on any number of ranks: 2 sequences "
            "and an order of 0, expected TokenBatch::order with a piece for each");
}

TEST(SequenceOrder, GroupsAreWholeSubtrees) {
  const auto starts = [](int64_t sequences, int64_t ranks, int64_t rank, int64_t together) {
    std::vector<int64_t> found;
    for (const SequenceGroup& group : sequence_plan(sequences, ranks, rank, together).groups) {
      found.push_back(group.sequences.start);
    }
    return found;
  };
  EXPECT_EQ(starts(8, 1, 0, 8), (std::vector<int64_t>{0}));
  EXPECT_EQ(starts(8, 1, 0, 5), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(starts(8, 2, 1, 2), (std::vector<int64_t>{0, 2}));
  // Two ranks cut 12 at 6, three at 4 and 8, which the tree follows in this order.
  EXPECT_EQ(starts(12, 1, 0, 6), (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(starts(12, 3, 1, 4), (std::vector<int64_t>{0, 2}));
  // A whole subtree, cut because the rank beside it has two.
  EXPECT_EQ(starts(12, 3, 0, 4), (std::vector<int64_t>{0, 3}));
  for (int64_t sequences = 1; sequences <= 24; ++sequences) {
    for (int64_t ranks = 1; ranks <= sequences; ++ranks) {
      if (sequences % ranks != 0) continue;
      for (int64_t rank = 1; rank < ranks; ++rank) {
        EXPECT_EQ(starts(sequences, ranks, rank, 3).size(), starts(sequences, ranks, 0, 3).size());
      }
    }
  }
  EXPECT_EQ(most_kept_gradients(8, 1, 8), 1);
  EXPECT_EQ(most_kept_gradients(8, 1, 1), 4);
  EXPECT_EQ(most_kept_gradients(12, 3, 4), 2);
  // Every second rank keeps four, its neighbours two.
  EXPECT_EQ(most_kept_gradients(96, 16, 2), 4);
}

TEST(ExactRun, RefusesAnotherNumberOfSequences) {
  GradientTree tree(8, 2, {});
  at::Tensor whole = at::empty({3});
  for (int i = 0; i < 3; ++i) tree.add({at::ones({2})});
  EXPECT_EQ(weft::testing::error_text([&] {
              tree.finish({{0, 3}}, whole);
            }),
            "ConfigError: train.exact: 3 backward passes in a step, expected one for each of 4 "
            "groups of sequences");
  tree.add({at::ones({2})});
  EXPECT_EQ(weft::testing::error_text([&] { tree.add({at::ones({2})}); }),
            "ConfigError: train.exact: more than 4 backward passes in a step, expected one for "
            "each group of sequences");
  tree.finish({{0, 3}}, whole);
  EXPECT_TRUE(at::equal(whole, at::tensor({4.F, 4.F, 0.F})));
}

}  // namespace
}  // namespace weft::train
