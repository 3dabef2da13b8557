#include "weft/nn/parallel/vocab_cross_entropy.h"

#include <torch/nn/functional/loss.h>

#include <cmath>
#include <limits>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"
#include "weft/dist/mesh.h"

namespace weft::nn {
namespace {

namespace functional = torch::nn::functional;
using dist::Group;
using test::expect_close;
using test::expect_equal_on_all_ranks;
using test::leaf;
using test::on_ranks;
using test::piece;
using test::seeded;
using testing::error_text;

constexpr int64_t kClasses = 11;

shard::Range classes_of(const Group& group) {
  return shard::part(kClasses, group.size(), group.rank());
}

at::Tensor some_targets() {
  return at::tensor({0, 10, 3, -100, 5, 8, 3, 2}, at::kLong).view({2, 4});
}

// torch's loss of whole logits [2, 4, V] in float64; it knows no z-loss.
at::Tensor torch_loss(const at::Tensor& logits, const at::Tensor& targets,
                      const CrossEntropyOptions& options) {
  functional::CrossEntropyFuncOptions like;
  like.ignore_index(options.ignore_index).label_smoothing(options.label_smoothing);
  like.reduction(torch::kNone);
  at::Tensor losses = functional::cross_entropy(logits.flatten(0, -2), targets.flatten(), like);
  const at::Tensor counts = (targets != options.ignore_index).flatten();
  const at::Tensor lse = at::logsumexp(logits.flatten(0, -2), -1);
  losses = losses + options.z_loss * lse.square() * counts;
  if (options.reduction == Reduction::kNone) return losses.view(targets.sizes());
  if (options.z_loss == 0) {
    if (options.reduction == Reduction::kSum) {
      like.reduction(torch::kSum);
    } else {
      like.reduction(torch::kMean);
    }
    return functional::cross_entropy(logits.flatten(0, -2), targets.flatten(), like);
  }
  return options.reduction == Reduction::kSum ? losses.sum() : losses.sum() / counts.sum();
}

struct LossCase {
  std::string name;
  at::Tensor logits;
  at::Tensor targets;
  double tolerance;
};

void expect_loss_equals_torch(const Group& group, const LossCase& what,
                              const CrossEntropyOptions& options) {
  const std::string name = core::join(what.name, ", ignore ", options.ignore_index, ", smoothing ",
                                      options.label_smoothing, ", z ", options.z_loss,
                                      ", reduction ", static_cast<int>(options.reduction));
  const at::Tensor whole = leaf(what.logits.to(at::kDouble));
  const at::Tensor expected = torch_loss(whole, what.targets, options);
  const at::Tensor part = leaf(piece(what.logits, -1, group));
  const at::Tensor loss =
      vocab_parallel_cross_entropy(part, what.targets, classes_of(group), kClasses, group, options);
  EXPECT_EQ(loss.scalar_type(), part.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const bool is_half = part.scalar_type() == at::kBFloat16;
  // Even of half types the loss is float32 throughout.
  expect_close(loss, expected, name + ": loss", is_half ? 1e-5 : what.tolerance);
  expect_equal_on_all_ranks(loss, group, name + ": loss");
  const at::Tensor grad = loss.dim() == 0 ? at::tensor(0.7, at::kDouble) : seeded(loss.sizes(), 5);
  expected.backward(grad);
  loss.backward(grad.to(loss.scalar_type()));
  EXPECT_EQ(part.grad().scalar_type(), part.scalar_type());
  expect_close(part.grad(), piece(whole.grad(), -1, group), name + ": gradient", what.tolerance);
}

void expect_all_options(const Group& group, const LossCase& what) {
  for (const auto reduction : {Reduction::kNone, Reduction::kSum, Reduction::kMean}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const double z_loss : {0.0, 1e-3}) {
        for (const int64_t ignore : {-100, 3}) {
          CrossEntropyOptions options;
          options.reduction = reduction;
          options.label_smoothing = smoothing;
          options.z_loss = z_loss;
          options.ignore_index = ignore;
          LossCase now = what;
          if (ignore == 3) now.targets = now.targets.clamp(0);
          expect_loss_equals_torch(group, now, options);
        }
      }
    }
  }
}

TEST(VocabParallelCrossEntropy, EqualsTorchsOnTheWhole) {
  on_ranks([](const Group& group) {
    const at::Tensor logits = seeded({2, 4, kClasses}, 1) * 3;
    expect_all_options(group, {"float64", logits, some_targets(), 1e-12});
    expect_all_options(group, {"float32", logits.to(at::kFloat), some_targets(), 1e-5});
    // The gradient is rounded once to bfloat16.
    expect_all_options(group, {"bfloat16", logits.to(at::kBFloat16), some_targets(), 0x1p-8});
  });
}

TEST(VocabParallelCrossEntropy, IsStableForLargeLogits) {
  on_ranks([](const Group& group) {
    for (const double offset : {1e4, -1e4}) {
      // Numbers that float32 holds exactly beside the offset.
      const at::Tensor logits =
          (at::arange(8 * kClasses, at::kFloat).remainder(7) / 2 + offset).view({2, 4, kClasses});
      CrossEntropyOptions options;
      options.label_smoothing = 0.1;
      expect_loss_equals_torch(group, {"large", logits, some_targets(), 1e-5}, options);
    }
    at::Tensor sharp = at::zeros({2, 4, kClasses});
    sharp.select(-1, 3).fill_(1e4);
    expect_loss_equals_torch(group, {"sharp", sharp, some_targets(), 1e-5}, {});
  });
}

TEST(VocabParallelCrossEntropy, IgnoresAllTokensAsTorchDoes) {
  on_ranks(
      [](const Group& group) {
        const at::Tensor ignored = at::full({3}, -100, at::kLong);
        const at::Tensor logits = seeded({3, kClasses}, 1, at::kFloat);
        for (const auto reduction : {Reduction::kSum, Reduction::kMean}) {
          CrossEntropyOptions options;
          options.reduction = reduction;
          const at::Tensor part = leaf(piece(logits, -1, group));
          const at::Tensor loss = vocab_parallel_cross_entropy(part, ignored, classes_of(group),
                                                               kClasses, group, options);
          const at::Tensor expected = torch_loss(logits, ignored, options);
          EXPECT_EQ(std::isnan(loss.item<double>()), std::isnan(expected.item<double>()));
          EXPECT_EQ(std::isnan(loss.item<double>()), reduction == Reduction::kMean);
          loss.backward();
          EXPECT_EQ(part.grad().abs().max().item<double>(), 0) << "and leaves no NaN behind";
        }
      },
      {1, 3});
}

// 4 ranks: 2 for the vocabulary, and 2 that hold 6 and 2 tokens of one batch.
TEST(VocabParallelCrossEntropy, WeighsTokensOfAllDataRanksAlike) {
  test::run_ranks(4, [](dist::World& world) {
    const dist::Mesh mesh(world, {{"data", 2}, {"model", 2}});
    const Group model = mesh.group({"model"}), data = mesh.group({"data"});
    const at::Tensor x = seeded({8, 5}, 1);
    const at::Tensor targets = at::tensor({0, 10, 3, 4, 5, 8, 3, 2}, at::kLong);
    const at::Tensor w_whole = leaf(seeded({kClasses, 5}, 2));
    const at::Tensor loss_whole = functional::cross_entropy(at::linear(x, w_whole), targets);
    loss_whole.backward();

    const bool is_first = data.rank() == 0;
    const at::Tensor x_rank = is_first ? x.narrow(0, 0, 6) : x.narrow(0, 6, 2);
    const at::Tensor targets_rank = is_first ? targets.narrow(0, 0, 6) : targets.narrow(0, 6, 2);
    const at::Tensor w = leaf(piece(w_whole, 0, model));
    CrossEntropyOptions options;
    options.count_group = data;
    at::Tensor loss = VocabParallelCrossEntropy(kClasses, model, options)
                          ->forward(at::linear(x_rank, w), targets_rank);
    loss.backward();
    at::Tensor grad = w.grad().clone(), sum = loss.detach().clone();
    data.all_reduce(grad);
    data.all_reduce(sum);
    expect_close(sum, loss_whole, "the losses' sum is the batch's mean");
    expect_close(grad, piece(w_whole.grad(), 0, model), "the gradients' sum is the batch's");

    // A bad target on one data rank is an error on all of them.
    const at::Tensor bad = is_first ? targets_rank : targets_rank + 100;
    const std::string text = error_text([&] {
      vocab_parallel_cross_entropy(at::linear(x_rank, w), bad, classes_of(model), kClasses, model,
                                   options);
    });
    const std::string where = "ShapeError: nn.vocab_parallel_cross_entropy: ";
    EXPECT_EQ(text, where + (is_first ? "a target outside of the vocabulary of 11 on another rank "
                                        "of group data; its own message names it"
                                      : "target 103, expected 0 to 10 or ignore_index -100"));
  });
}

TEST(VocabParallelCrossEntropy, RefusesWhatDoesNotFitOnAllRanks) {
  on_ranks(
      [](const Group& group) {
        const at::Tensor logits = piece(seeded({3, kClasses}, 1, at::kFloat), -1, group);
        const auto text = [&](const at::Tensor& x, const at::Tensor& targets,
                              const CrossEntropyOptions& options = {}) {
          return error_text([&] {
            vocab_parallel_cross_entropy(x, targets, classes_of(group), kClasses, group, options);
          });
        };
        const std::string where = "nn.vocab_parallel_cross_entropy: ";
        const at::Tensor good = at::tensor({1, 2, 3}, at::kLong);
        EXPECT_EQ(text(logits, at::tensor({1, 11, 3}, at::kLong)),
                  "ShapeError: " + where + "target 11, expected 0 to 10 or ignore_index -100");
        EXPECT_EQ(text(logits, at::tensor({1, -1, 3}, at::kLong)),
                  "ShapeError: " + where + "target -1, expected 0 to 10 or ignore_index -100");
        EXPECT_EQ(
            text(logits, at::tensor({1, 2}, at::kLong)),
            core::join("ShapeError: ", where, "logits Float [3, ", logits.size(1),
                       "] for targets [2], expected floating [targets…, ", logits.size(1), "]"));
        EXPECT_EQ(text(logits, good.to(at::kInt)),
                  "ShapeError: " + where + "targets of dtype Int, expected int64");
        CrossEntropyOptions options;
        options.label_smoothing = 1.5;
        EXPECT_EQ(text(logits, good, options),
                  "ConfigError: " + where + "label_smoothing 1.5, expected 0 to 1");
        options = {};
        options.z_loss = -1;
        EXPECT_EQ(text(logits, good, options),
                  "ConfigError: " + where + "z_loss -1, expected 0 or more");
        EXPECT_EQ(error_text([&] { VocabParallelCrossEntropy(1, group); }),
                  "ConfigError: nn.VocabParallelCrossEntropy: vocabulary: 1 units of 1 cannot be "
                  "cut over 2 ranks; use 1 to 1 ranks");
      },
      {2});
}

TEST(VocabParallelCrossEntropy, NeedsTwoAllReducesForwardAndNoneBackward) {
  on_ranks(
      [](const Group& group) {
        test::CountedGroup counted(group);
        const at::Tensor logits = leaf(piece(seeded({2, 4, kClasses}, 1), -1, group));
        CrossEntropyOptions options;
        options.label_smoothing = 0.1;
        options.z_loss = 1e-3;
        const at::Tensor loss = vocab_parallel_cross_entropy(
            logits, some_targets(), classes_of(group), kClasses, counted.group(), options);
        EXPECT_EQ(counted.take_count(), 2);
        loss.backward();
        EXPECT_EQ(counted.take_count(), 0);
      },
      {2});
}

TEST(VocabParallelCrossEntropy, RefusesAGradientOfTheGradient) {
  const at::Tensor logits = leaf(seeded({3, kClasses}, 1));
  const at::Tensor loss = vocab_parallel_cross_entropy(logits, at::tensor({1, 2, 3}, at::kLong),
                                                       {0, kClasses}, kClasses, Group());
  EXPECT_EQ(error_text([&] { loss.backward({}, true, true); }),
            "ConfigError: nn.vocab_parallel_cross_entropy: a gradient of the gradient is not "
            "defined; call backward without create_graph");
}

}  // namespace
}  // namespace weft::nn
