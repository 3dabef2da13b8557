// The residual stream cut over the model axis: losses and gradients of the whole.
#include <map>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/nn/parameter_part.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::model_data;
using test::part_of;
using testing::error_text;

struct ModelCase {
  std::string path;
  /// Adapters beside frozen, quantized weights instead of all weights.
  bool adapts = false;
};

std::shared_ptr<CausalLM> load(const ModelCase& c, const Group& group) {
  LoadOptions options;
  options.is_trainable = !c.adapts;
  const auto model = load_model(*io::TensorFile::open(model_data(c.path)), group, options).model;
  if (c.adapts) {
    nn::quantize(*model, {quant::Mode::kAffine, 8, 32},
                 [](const std::string& path) { return path.ends_with("q_proj"); });
    nn::apply_lora(*model, {"q_proj", "o_proj", "down_proj"}, {});
  }
  return model;
}

// 3 sequences of 7 tokens: over no number of ranks evenly but 3.
TokenBatch packed_batch() {
  TokenBatch tokens{at::arange(21, at::kLong).view({3, 7}).remainder(17) + 2};
  tokens.documents_BT = at::arange(21, at::kLong).view({3, 7}).floor_divide(4);
  return tokens;
}

at::Tensor padded_targets() {
  at::Tensor ids = at::arange(21, at::kLong).view({3, 7}).remainder(13) + 1;
  return ids.index_fill_(1, at::tensor({2}, at::kLong), -100);
}

TrainingOptions cut_along_the_sequence() {
  TrainingOptions options;
  options.sequence_parallel = true;
  return options;
}

void expect_same_gradients(CausalLM& model, CausalLM& whole, const Group& group,
                           const std::string& what) {
  std::map<std::string, at::Tensor> expected;
  for (const auto& info : nn::describe_parameters(whole)) expected[info.name] = info.tensor.grad();
  const auto partial = model.partial_parameters();
  for (const auto& info : nn::describe_parameters(model)) {
    at::Tensor gradient = info.tensor.grad().clone();
    if (std::ranges::find(partial, info.name) != partial.end()) group.all_reduce(gradient);
    expect_close(gradient, part_of(expected.at(info.name), info, group.rank()),
                 what + " " + info.name, 1e-5);
  }
}

void expect_whole(const Group& group, const ModelCase& c, bool recomputes) {
  const auto whole = load(c, {}), model = load(c, group);
  const at::Tensor expected = whole->token_losses(whole->forward(packed_batch()), padded_targets());
  expected.sum().backward();
  TrainingOptions training = cut_along_the_sequence();
  training.checkpointed.assign(model->blocks().size(), recomputes);
  model->set_training(training);
  const at::Tensor x_rD = model->forward(packed_batch());
  EXPECT_EQ(x_rD.size(0),
            group.size() == 1 ? 3 : shard::part(21, group.size(), group.rank()).length);
  const at::Tensor losses = model->token_losses(x_rD, padded_targets());
  expect_close(losses, expected, c.path, 1e-5);
  losses.sum().backward();
  expect_same_gradients(*model, *whole, group, c.path);
  const at::NoGradGuard no_grad;
  expect_close(model->loss_sum(model->forward(packed_batch()), padded_targets()), expected.sum(),
               c.path, 1e-5);
  const at::Tensor logits = whole->logits(whole->forward(packed_batch()));
  expect_close(model->logits(model->forward(packed_batch())).flatten(0, -2), logits.flatten(0, -2),
               c.path, 1e-5);
}

TEST(SequenceParallel, GivesLossesAndGradientsOfTheWhole) {
  test::on_ranks([](const Group& group) {
    expect_whole(group, {"families/llama"}, false);
    expect_whole(group, {"families/llama"}, true);
    expect_whole(group, {"families/llama_bias"}, false);
    expect_whole(group, {"families/qwen3"}, false);
    expect_whole(group, {"mlx/plain_f32", true}, false);
  });
}

// What goes through a cache is whole: a model in training can still generate.
TEST(SequenceParallel, LeavesPassesWithACacheAsTheyAre) {
  test::on_ranks(
      [](const Group& group) {
        const auto model = load({"families/llama"}, group);
        const at::NoGradGuard no_grad;
        const at::Tensor ids_BT = at::arange(5, at::kLong).unsqueeze(0);
        const at::Tensor expected = model->logits(model->forward(ids_BT, nullptr));
        model->set_training(cut_along_the_sequence());
        model->forward(packed_batch());
        EXPECT_TRUE(at::equal(model->logits(model->forward(ids_BT, nullptr)), expected));
      },
      {2});
}

TEST(SequenceParallel, RefusesExperts) {
  const auto model = load_model(*io::TensorFile::open(model_data("families/mixtral")), {}).model;
  EXPECT_EQ(error_text([&] { model->set_training(cut_along_the_sequence()); }),
            "ConfigError: models.CausalLM: sequence parallelism: mixtral with experts, expected a "
            "model without");
}

}  // namespace
}  // namespace weft::models
