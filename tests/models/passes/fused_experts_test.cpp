// Mixtures of experts in the fused pass against the modules that they stand for.
#include "weft/models/passes/experts/fused_experts.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/expert_split.h"
#include "weft/models/load/new_model.h"
#include "weft/models/registry.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/quant/kernels/panel_select.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::in_pieces;
using test::on_ranks;
using test::seeded;

// Five experts in a layer: not the same number on each of several ranks, nor the same share of
// their 160 features.
ModelConfig experts_config(const std::string& family) {
  ModelConfig config;
  config.family = family;
  config.vocab_size = 97;
  config.width = 64;
  config.num_layers = 3;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.ffn_width = family == "mixtral" ? 160 : 384;
  config.max_positions = 64;
  config.experts.num_experts = 5;
  config.experts.experts_per_token = family == "mixtral" ? 2 : 3;
  config.experts.ffn_width = 160;
  config.experts.normalizes_weights = family != "qwen2_moe";
  if (family == "qwen3_moe") config.head_norms = HeadNorms::kEachHead;
  if (family == "qwen2_moe") {
    config.has_qkv_bias = true;
    config.experts.shared_ffn_width = 192;
    config.experts.plain_layers = {1};
  }
  if (family == "gpt_oss") {
    take_family_traits(config);
    config.gating.limit = 0.7;
  }
  if (family == "gemma4_text") {
    take_family_traits(config);
    config.windows = {5, 0, 5};
    config.full_layers = {64, 1, true};
    config.attention_scale = 0.1;
    config.experts.is_beside_ffn = true;
  }
  if (family == "glm4_moe") {
    take_family_traits(config);
    config.rope_dims = 16;
    config.experts.num_experts = 6;
    config.experts.shared_ffn_width = 192;
    config.experts.plain_layers = {1};
    config.experts.num_groups = 3;
    config.experts.groups_per_token = 2;
    config.experts.weights_scale = 1.5;
  }
  return config;
}

std::shared_ptr<CausalLM> plain_model(const ModelConfig& config, const Group& group,
                                      ExpertSplit split) {
  const auto header = header_of(config);
  WeightRules rules = find_family(config.family).rules(config, *header);
  for (const char* name : {"expert_ffn", "shared_ffn"}) {
    if (rules.splits.contains(name)) rules.splits.at(name).unit = quant::kernels::kBlockColumns;
  }
  if (split == ExpertSplit::kExperts) split_by_experts(config, rules);
  const AgreedModel agreed(config, LoadPlan(*header, rules, group.size()), group, {"test", ""});
  InitOptions options;
  options.std = 0.2;
  auto model = agreed.make(InitialWeights(agreed, group.rank(), options), {}, false);
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) {
      parameter.detach().add_(at::arange(parameter.numel(), at::kFloat).sin(), 0.3);
    }
  }
  for (const auto& buffer : model->named_buffers()) {
    if (buffer.key().ends_with("_factors") || buffer.key().ends_with("_scalar")) {
      buffer.value().add_(at::arange(buffer.value().numel(), at::kFloat).cos(), -0.2);
    }
    if (!buffer.key().ends_with(".choice_bias")) continue;
    buffer.value().copy_((at::arange(buffer.value().numel(), at::kFloat) * 5).sin() * 0.2);
  }
  return model;
}

bool is_router(const std::string& path) {
  return path.ends_with(".gate") || path.ends_with(".router") || path.ends_with(".router.proj") ||
         path.ends_with("shared_expert_gate");
}

// A form of panels: codes of so many bits, symmetric or not, or plain numbers of a type.
struct Form {
  std::string name;
  int64_t bits = 0;
  at::ScalarType type = at::kFloat;
  int64_t code_bits = 16;
};

// Linears that are no routers as panels of the form.
void put_in_form(torch::nn::Module& module, const Form& form) {
  if (form.bits != 0) {
    quant::Scheme scheme;
    scheme.bits = form.bits;
    scheme.group_size = 32;
    scheme.scale_dtype = form.type;
    nn::quantize(module, scheme, [](const std::string& path) { return !is_router(path); });
  }
  for (const nn::HeldLinear& each : nn::find_linears(module)) {
    const auto dense = std::dynamic_pointer_cast<nn::DenseLinearImpl>(each.holder->inner());
    if (form.bits != 0 || is_router(each.path) || dense == nullptr) continue;
    const bool is_tied = each.path.ends_with("embed_tokens");
    if (!is_tied) {
      each.holder->set_inner(
          std::make_shared<nn::DenseLinearImpl>(dense->weight.to(form.type), dense->bias));
    }
  }
  nn::put_in_panels(module, form.code_bits);
}

at::Tensor expert_ids(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens).mul(31).remainder(97).view({batch, tokens});
}

const std::vector<Form> kForms = {{"4 bits", 4, at::kHalf},       {"6 bits", 6, at::kHalf},
                                  {"8 bits", 8, at::kFloat},      {"float32", 0, at::kFloat},
                                  {"float16", 0, at::kHalf},      {"bfloat16", 0, at::kBFloat16},
                                  {"codes of 8", 4, at::kHalf, 8}};

// The first layer's mixture alone: the rows of both are the same, so both choose the same experts.
void expect_mixture(const ModelConfig& config, const Form& form, const Group& group,
                    ExpertSplit split) {
  const auto model = plain_model(config, group, split);
  put_in_form(*model, form);
  nn::MixtureOfExperts mixture =
      std::dynamic_pointer_cast<DecoderBlockImpl>(model->blocks().front())->experts();
  HeldLinears held;
  const auto layer = FusedExperts::take(mixture, held);
  ASSERT_TRUE(layer.has_value()) << form.name;
  FusedExperts experts;
  experts.add_wants(*layer);
  for (const auto& [sequences, tokens] : {std::pair{1, 1}, {7, 1}, {1, 5}, {2, 40}}) {
    const int64_t rows = sequences * tokens;
    const at::Tensor x_SD = seeded({rows, config.width}, 7, at::kFloat);
    at::Tensor sum_SD = at::full_like(x_SD, 1e9);
    experts.inputs().take(quant::kernels::active_panel_kernel(), {rows, config.width, tokens},
                          [&](int64_t row, float* /*room*/) {
                            return x_SD.const_data_ptr<float>() + row * config.width;
                          });
    experts.run(*layer, tokens, sum_SD.mutable_data_ptr<float>());
    group.all_reduce(sum_SD);
    // Long sequences may be rounded to bfloat16.
    const double tolerance = tokens > quant::PanelInputs::kExactRows ? 1e-2 : 2e-4;
    expect_close(sum_SD, mixture->forward(x_SD.unsqueeze(0)).squeeze(0),
                 core::join(config.family, ", ", form.name, ", ", rows, " rows on ", group.size()),
                 form.code_bits == 8 ? 1e-2 : tolerance);
  }
}

TEST(FusedExperts, GiveWhatTheModuleGives) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    for (const ExpertSplit split : {ExpertSplit::kFfn, ExpertSplit::kExperts}) {
      for (const Form& form : kForms)
        expect_mixture(experts_config("qwen2_moe"), form, group, split);
      for (const char* family : {"gpt_oss", "glm4_moe"}) {
        expect_mixture(experts_config(family), kForms.front(), group, split);
        expect_mixture(experts_config(family), kForms.back(), group, split);
      }
      expect_mixture(experts_config("mixtral"), kForms.front(), group, split);
    }
  });
}

TEST(FusedExperts, GiveTheModulesPassOfAWholeModel) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    for (const std::string family :
         {"mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "glm4_moe", "gemma4_text"}) {
      for (const ExpertSplit split : {ExpertSplit::kFfn, ExpertSplit::kExperts}) {
        const auto model = plain_model(experts_config(family), group, split);
        put_in_form(*model, kForms.front());
        EXPECT_EQ(model->make_cache(1, 1).dtype(), at::kHalf) << family;
        model->set_cache_dtype(at::kFloat);
        const at::Tensor one_BT = expert_ids(1, 12), few_BT = expert_ids(3, 5);
        const at::Tensor one = model->forward(one_BT, nullptr);
        expect_close(in_pieces(*model, one_BT, {12}), one, family, 2e-3);
        expect_close(in_pieces(*model, one_BT, {5, 1, 1, 4, 1}), one, family + " in pieces", 2e-3);
        expect_close(in_pieces(*model, few_BT, {2, 1, 2}), model->forward(few_BT, nullptr),
                     family + ", a batch in pieces", 2e-3);
      }
    }
  });
}

// Where ranks share memory and rows are many, each norms its own, and all route all.
// `sums`: of all layers.
void expect_shared_rows_of_experts(const std::string& family, uint64_t sums, const Group& group) {
  for (const ExpertSplit split : {ExpertSplit::kFfn, ExpertSplit::kExperts}) {
    const auto model = plain_model(experts_config(family), group, split);
    put_in_form(*model, kForms.front());
    model->set_cache_dtype(at::kFloat);
    // Of no row are two experts' scores so close that rounding chooses between them.
    const at::Tensor ids_BT = expert_ids(31, 13).add(5).remainder(97);
    const uint64_t calls = group.traffic().reduce_scatter.calls;
    expect_close(in_pieces(*model, ids_BT, {13}), model->forward(ids_BT, nullptr),
                 core::join(family, ", 403 rows on ", group.size()), 2e-3);
    const bool is_shared = group.size() > 1 && group.shares_memory();
    EXPECT_EQ(group.traffic().reduce_scatter.calls - calls, is_shared ? sums : 0u) << family;
  }
}

TEST(FusedExperts, ShareTheRowsOfLongPrompts) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    expect_shared_rows_of_experts("qwen2_moe", 6, group);
    // Experts beside a feed-forward layer have a sum of their own.
    expect_shared_rows_of_experts("gemma4_text", 9, group);
  });
}

TEST(FusedExperts, ReadFewTokensAsOneByOneBitForBit) {
  on_ranks(
      [](const Group& group) {
        const c10::InferenceMode inference;
        const auto model = plain_model(experts_config("qwen2_moe"), group, ExpertSplit::kFfn);
        put_in_form(*model, kForms.back());
        const at::Tensor ids_BT = expert_ids(1, 12);
        EXPECT_TRUE(at::equal(in_pieces(*model, ids_BT, {4, 8}),
                              in_pieces(*model, ids_BT, {4, 1, 1, 1, 1, 1, 1, 1, 1})));
      },
      {1, 3});
}

TEST(FusedExperts, TakeUpAnotherExpert) {
  const c10::InferenceMode inference;
  const auto model = plain_model(experts_config("mixtral"), Group(), ExpertSplit::kFfn);
  put_in_form(*model, kForms.front());
  model->set_cache_dtype(at::kFloat);
  const at::Tensor ids_BT = expert_ids(1, 12);
  const at::Tensor before = in_pieces(*model, ids_BT, {12});
  const auto linears = nn::find_linears(*model);
  const auto find = [&](const std::string& end) {
    return std::ranges::find_if(linears, [&](const auto& each) { return each.path.ends_with(end); })
        ->holder;
  };
  for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
    const std::string experts = std::string(layer) + ".block_sparse_moe.experts.";
    find(experts + "0.w2")->set_inner(find(experts + "1.w2")->inner());
  }
  const at::Tensor after = in_pieces(*model, ids_BT, {12});
  EXPECT_GT((after - before).abs().max().item<double>(), 0.1);
  expect_close(after, model->forward(ids_BT, nullptr), "another expert", 2e-3);
}

}  // namespace
}  // namespace weft::models
