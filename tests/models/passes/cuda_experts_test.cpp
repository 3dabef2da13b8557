// Mixtures of experts in the GPU's pass against the modules that they stand for.
#include "weft/models/passes/cuda/cuda_experts.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>

#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "tests/support/needs_cuda.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/expert_split.h"
#include "weft/models/load/new_model.h"
#include "weft/models/registry.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::logits_in_pieces;
using test::seeded;

// Seven experts in a layer: not the same number on each of several ranks, nor the same share of
// their 40 features, which are five units of 8.
ModelConfig mixture_config(const std::string& family) {
  ModelConfig config;
  const bool is_clamped = family == "clamped with biases";
  config.family = is_clamped ? "gpt_oss" : family == "gelu" ? "mixtral" : family;
  config.vocab_size = 48;
  config.width = 32;
  config.num_layers = 3;
  config.num_heads = 6;
  config.num_kv_heads = 3;
  config.head_dim = 16;
  config.max_positions = 64;
  config.experts.num_experts = 7;
  config.experts.experts_per_token = 3;
  config.experts.ffn_width = 40;
  if (is_clamped || family == "glm4_moe") take_family_traits(config);
  config.ffn_width = config.family == "mixtral" || is_clamped ? 40 : 72;
  if (family == "gelu") config.gating.activation = nn::Activation::kGeluTanh;
  if (family == "qwen3_moe") config.head_norms = HeadNorms::kEachHead;
  if (family == "qwen2_moe") {
    config.has_qkv_bias = true;
    config.experts.normalizes_weights = false;
    config.experts.shared_ffn_width = 48;
    config.experts.plain_layers = {1};
  }
  if (is_clamped) config.gating.limit = 0.7;
  if (family == "glm4_moe") {
    config.rope_dims = 8;
    config.experts.num_experts = 9;
    config.experts.shared_ffn_width = 48;
    config.experts.plain_layers = {0};
    config.experts.num_groups = 3;
    config.experts.groups_per_token = 2;
    config.experts.weights_scale = 1.5;
  }
  return config;
}

std::shared_ptr<CausalLM> model_of_experts(const ModelConfig& config, const Group& group,
                                           ExpertSplit split) {
  const auto header = header_of(config);
  WeightRules rules = find_family(config.family).rules(config, *header);
  for (auto& [name, rule] : rules.splits) {
    if (name.ends_with("ffn")) rule.unit = cuda::kUnit;
  }
  if (split == ExpertSplit::kExperts) split_by_experts(config, rules);
  const AgreedModel agreed(config, LoadPlan(*header, rules, group.size()), group, {"test", ""});
  InitOptions options;
  options.std = 0.2;
  auto model = agreed.make(InitialWeights(agreed, group.rank(), options), {}, false);
  model->eval();
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) {
      parameter.detach().add_(at::arange(parameter.numel(), at::kFloat).sin(), 0.3);
    }
  }
  for (const auto& buffer : model->named_buffers()) {
    if (!buffer.key().ends_with(".choice_bias")) continue;
    buffer.value().copy_((at::arange(buffer.value().numel(), at::kFloat) * 5).sin() * 0.2);
  }
  return model;
}

bool is_up_of_experts(const std::string& path) {
  return path.find("experts.") != std::string::npos && path.ends_with("up_proj");
}

// How matrices are held.
enum class WeightForm { kFloats, kFourBits, kUpInOtherBits };

void quantize_model(CausalLM& model, WeightForm form) {
  if (form == WeightForm::kFloats) return;
  quant::Scheme scheme;
  scheme.group_size = 8;
  scheme.scale_dtype = at::kHalf;
  if (form == WeightForm::kUpInOtherBits) {
    quant::Scheme other = scheme;
    other.bits = 5;
    nn::quantize(model, other, is_up_of_experts);
  }
  nn::quantize(model, scheme, [form](const std::string& path) {
    return form != WeightForm::kUpInOtherBits || !is_up_of_experts(path);
  });
}

// The same weights on the processor and on the GPU.
struct MixtureModels {
  MixtureModels(const ModelConfig& config, const Group& group, ExpertSplit split, WeightForm form)
      : reference(model_of_experts(config, group, split)),
        moved(model_of_experts(config, group, split)) {
    quantize_model(*reference, form);
    quantize_model(*moved, form);
    std::map<const nn::LinearLike*, std::shared_ptr<nn::LinearLike>> made;
    for (const nn::HeldLinear& each : nn::find_linears(*moved)) {
      auto& own = made[each.holder->inner().get()];
      if (own == nullptr) own = nn::on_cuda(*each.holder->inner());
      keep.push_back(each.holder->inner());
      each.holder->set_inner(own);
    }
  }
  at::Tensor expected(const at::Tensor& ids_BT) const {
    return reference->logits(reference->forward(ids_BT, nullptr));
  }

  std::shared_ptr<CausalLM> reference, moved;
  std::vector<std::shared_ptr<nn::LinearLike>> keep;
};

at::Tensor mixture_ids(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens).mul(31).remainder(48).view({batch, tokens});
}

const std::vector<std::string> kFamilies = {"mixtral",  "qwen2_moe", "qwen3_moe",
                                            "glm4_moe", "gelu",      "clamped with biases"};

class CudaExpertsPass : public test::NeedsCuda {};

TEST_F(CudaExpertsPass, GivesWhatTheModulesGive) {
  const c10::InferenceMode inference;
  for (const std::string& family : kFamilies) {
    const bool is_plain = family == "mixtral";
    const MixtureModels models(mixture_config(family), {}, ExpertSplit::kFfn,
                               is_plain ? WeightForm::kFloats : WeightForm::kFourBits);
    ::testing::internal::CaptureStderr();
    for (const int64_t batch : {1, 2}) {
      const at::Tensor ids_BT = mixture_ids(batch, 40);
      const at::Tensor expected = models.expected(ids_BT);
      const auto check = [&](const at::Tensor& got, const char* what) {
        expect_close(got, expected, core::join(family, ", ", batch, " sequences, ", what), 1e-4);
      };
      check(logits_in_pieces(*models.moved, ids_BT, {40}), "at once");
      check(logits_in_pieces(*models.moved, ids_BT, {20, 1, 1, 1, 4, 1, 1, 1, 1, 9}), "in pieces");
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << family;
  }
}

TEST_F(CudaExpertsPass, TakesMatricesOfSeveralForms) {
  const c10::InferenceMode inference;
  const MixtureModels models(mixture_config("qwen3_moe"), {}, ExpertSplit::kFfn,
                             WeightForm::kUpInOtherBits);
  const at::Tensor ids_BT = mixture_ids(1, 25);
  expect_close(logits_in_pieces(*models.moved, ids_BT, {20, 1, 1, 3}), models.expected(ids_BT),
               "up in 5 bits", 1e-4);
}

TEST_F(CudaExpertsPass, FewTokensAtOnceHaveTheBitsOfOneByOne) {
  const c10::InferenceMode inference;
  for (const std::string family : {"qwen2_moe", "glm4_moe"}) {
    const MixtureModels models(mixture_config(family), {}, ExpertSplit::kFfn,
                               WeightForm::kFourBits);
    const at::Tensor ids_BT = mixture_ids(1, 20);
    std::vector<int64_t> singles(17, 1);
    singles[0] = 4;
    const at::Tensor expected = logits_in_pieces(*models.moved, ids_BT, singles);
    EXPECT_TRUE(at::equal(logits_in_pieces(*models.moved, ids_BT, {4, 16}), expected)) << family;
    EXPECT_TRUE(at::equal(logits_in_pieces(*models.moved, ids_BT, {4, 1, 9, 6}), expected))
        << family;
  }
}

// A batch of one token each is recorded the second time, with other experts than the first.
TEST_F(CudaExpertsPass, ARecordedPassRoutesAnew) {
  const c10::InferenceMode inference;
  ModelConfig config = mixture_config("qwen3_moe");
  // Of 20 sequences each expert gets a few, of 35 many.
  config.experts.num_experts = 20;
  const MixtureModels models(config, {}, ExpertSplit::kFfn, WeightForm::kFourBits);
  for (const int64_t batch : {1, 3, 20, 35}) {
    const at::Tensor ids_BT = mixture_ids(batch, 7);
    expect_close(logits_in_pieces(*models.moved, ids_BT, {1, 1, 1, 1, 1, 1, 1}),
                 models.expected(ids_BT), core::join(batch, " sequences"), 1e-4);
  }
}

// The third of the single tokens is a recorded pass where sums do not travel.
void check_mixture_on_ranks(const Group& group) {
  cuda::select_device("test", group.rank());
  const c10::InferenceMode inference;
  for (const ExpertSplit split : {ExpertSplit::kFfn, ExpertSplit::kExperts}) {
    for (const std::string family : {"qwen2_moe", "glm4_moe", "clamped with biases"}) {
      const MixtureModels models(mixture_config(family), group, split, WeightForm::kFourBits);
      const at::Tensor ids_BT = mixture_ids(1, 24);
      expect_close(logits_in_pieces(*models.moved, ids_BT, {20, 1, 1, 1, 1}),
                   models.expected(ids_BT), core::join(family, " on ", group.size(), " ranks"),
                   1e-4);
    }
  }
}

TEST_F(CudaExpertsPass, RanksWithGpusOfTheirOwnGiveWhatOneGives) {
  test::on_ranks(check_mixture_on_ranks, {2, 3});
}

TEST_F(CudaExpertsPass, RanksThatShareAGpuGiveWhatOneGives) {
  ::setenv("CUDA_ON_CPU_SHARED", "1", 1);
  test::on_ranks(check_mixture_on_ranks, {2});
  ::unsetenv("CUDA_ON_CPU_SHARED");
}

TEST_F(CudaExpertsPass, TakesUpAnotherExpert) {
  const c10::InferenceMode inference;
  const MixtureModels models(mixture_config("mixtral"), {}, ExpertSplit::kFfn, WeightForm::kFloats);
  const at::Tensor ids_BT = mixture_ids(1, 12);
  const at::Tensor before = logits_in_pieces(*models.moved, ids_BT, {12});
  for (const auto& model : {models.reference, models.moved}) {
    const auto linears = nn::find_linears(*model);
    const auto find = [&](const std::string& end) {
      return std::ranges::find_if(linears,
                                  [&](const auto& each) { return each.path.ends_with(end); })
          ->holder;
    };
    for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
      const std::string experts = std::string(layer) + ".block_sparse_moe.experts.";
      for (const char* number : {"0", "2", "3"}) {
        find(experts + number + ".w2")->set_inner(find(experts + "1.w2")->inner());
      }
    }
  }
  const at::Tensor after = logits_in_pieces(*models.moved, ids_BT, {12});
  EXPECT_GT((after - before).abs().max().item<double>(), 0.01);
  expect_close(after, models.expected(ids_BT), "another expert", 1e-4);
}

}  // namespace
}  // namespace weft::models
