// Gradients of whole models against transformers, on any number of ranks.
#include <map>

#include "tests/models/model_files.h"
#include "tests/nn/parameter_part.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::model_data;
using test::on_ranks;
using test::part_of;

// What make_training_goldens.py wrote of a case.
class Reference {
 public:
  explicit Reference(const std::string& name)
      : file_(io::TensorFile::open(model_data("training/" + name + "/ref.safetensors"))) {}

  at::Tensor values(const std::string& name) const {
    return io::load_tensor(*file_, name, at::kFloat);
  }
  at::Tensor integers(const std::string& name) const { return values(name).to(at::kLong); }
  TokenBatch batch(bool is_packed) const {
    if (!is_packed) return {integers("ids")};
    return {integers("ids"), integers("documents"), integers("positions")};
  }

 private:
  std::shared_ptr<const io::TensorFile> file_;
};

std::shared_ptr<CausalLM> load_trainable(const std::string& name, const Group& group) {
  LoadOptions options;
  options.is_trainable = true;
  return load_model(*io::TensorFile::open(model_data("training/" + name + "/model.safetensors")),
                    group, options)
      .model;
}

at::Tensor run_step(CausalLM& model, const TokenBatch& batch, const at::Tensor& targets) {
  model.zero_grad();
  const at::Tensor loss = model.loss_sum(model.forward(batch), targets);
  loss.backward();
  return loss.detach();
}

TEST(Training, GivesTheGradientsOfThePublishedImplementation) {
  on_ranks(
      [](const Group& group) {
        for (const std::string name : {"tied", "untied"}) {
          const Reference reference(name);
          const auto model = load_trainable(name, group);
          for (const std::string kind : {"plain", "packed"}) {
            const at::Tensor loss =
                run_step(*model, reference.batch(kind == "packed"), reference.integers("targets"));
            expect_close(loss.view({1}), reference.values(kind + ".loss"), name + " loss", 1e-5);
            for (const nn::ParameterInfo& info : nn::describe_parameters(*model)) {
              const at::Tensor whole = reference.values(kind + "." + info.name);
              expect_close(info.tensor.grad(), part_of(whole, info, group.rank()),
                           core::join(name, " ", kind, " ", info.name), 1e-4);
            }
          }
        }
      },
      {1, 2, 3});
}

std::vector<at::Tensor> gradients(CausalLM& model) {
  std::vector<at::Tensor> found;
  for (const nn::ParameterInfo& info : nn::describe_parameters(model)) {
    found.push_back(info.tensor.grad().clone());
  }
  return found;
}

TEST(Training, ChecksEveryTokenByItself) {
  const Reference reference("tied");
  const auto model = load_trainable("tied", Group());
  const at::Tensor targets_BT = reference.integers("targets");
  const at::Tensor losses_BT =
      model->token_losses(model->forward(reference.batch(false)), targets_BT);
  EXPECT_EQ(losses_BT.sizes(), targets_BT.sizes());
  EXPECT_TRUE((losses_BT.masked_select(targets_BT == -100) == 0).all().item<bool>());
  expect_close(losses_BT.sum().view({1}), reference.values("plain.loss"), "sum", 1e-5);
}

TEST(Training, CheckpointingChangesNoBit) {
  on_ranks(
      [](const Group& group) {
        for (const std::string name : {"tied", "untied"}) {
          const Reference reference(name);
          const auto model = load_trainable(name, group);
          const at::Tensor targets = reference.integers("targets");
          const at::Tensor loss = run_step(*model, reference.batch(true), targets);
          const auto expected = gradients(*model);
          for (const std::vector<bool>& blocks : {std::vector<bool>{true, true}, {false, true}}) {
            TrainingOptions training;
            training.checkpointed = blocks;
            model->set_training(training);
            EXPECT_TRUE(at::equal(run_step(*model, reference.batch(true), targets), loss));
            const auto got = gradients(*model);
            for (size_t i = 0; i < got.size(); ++i)
              EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
          }
        }
      },
      {1, 2});
}

TEST(Training, BlocksAreTheLayersWithTheirParameters) {
  const auto model = load_trainable("tied", Group());
  EXPECT_EQ(model->blocks().size(), 2U);
  EXPECT_EQ(model->blocks()[1]->parameters().size(), 9U);
}

TEST(Training, LeavesQuantizedWeightsFrozen) {
  LoadOptions options;
  options.is_trainable = true;
  const auto file = io::TensorFile::open(model_data("mlx/affine_b4_g64_f32"));
  const auto model = load_model(*file, Group(), options).model;
  for (const nn::ParameterInfo& info : nn::describe_parameters(*model)) {
    EXPECT_NE(info.name.find("norm.weight"), std::string::npos) << info.name;
  }
  EXPECT_TRUE(model->is_training());
  const at::Tensor ids = at::arange(6).view({1, 6});
  run_step(*model, {ids}, ids);
  EXPECT_GT(model->parameters()[0].grad().abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace weft::models
