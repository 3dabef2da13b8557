// The same bits on any number of ranks, of random models of the golden checkpoints' families.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/models/enlarged_family.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/dist/backends/names.h"
#include "weft/models/decoder/decoder_rules.h"
#include "weft/models/decoder/expert_split.h"
#include "weft/models/reads_each.h"
#include "weft/models/registry.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/quant/kernels/panel_kernel.h"

namespace weft::models {
namespace {

using dist::Group;

// Random weights whose sums have one order: matrices in panels, of 4 bits but for routers and the
// projections of the first layer, which are plain; vectors with a number for each place.
class ExactWeights : public InitialWeights {
 public:
  using InitialWeights::InitialWeights;

  bool is_exact() const override { return true; }

  std::shared_ptr<nn::LinearLike> linear(const std::string& base, bool with_bias) const override {
    constexpr int64_t kBits = 4, kGroup = 32;
    const nn::PanelOptions panels = {.activation_bits = 16, .is_exact = true};
    const auto dense =
        std::dynamic_pointer_cast<nn::DenseLinearImpl>(InitialWeights::linear(base, with_bias));
    const at::Tensor values = dense->weight.detach();
    const at::Tensor bias = dense->bias.defined() ? dense->bias.detach() : at::Tensor();
    if (base.find("layers.0.self_attn") != std::string::npos) {
      return nn::in_panels(nn::DenseLinearImpl(values.to(at::kBFloat16), bias), panels);
    }
    const bool is_router = base.ends_with(".gate") || base.ends_with("router");
    if (is_router) return std::make_shared<nn::DenseLinearImpl>(values * 4, bias);
    // The whole's rows, which say the same on every rank.
    if (plan().require(base + ".weight").rule.out < kGroup)
      return nn::in_panels(nn::DenseLinearImpl(values, bias), panels);
    const auto quantized = quant::quantize_affine(values, kBits, kGroup, at::kHalf);
    return nn::in_panels(nn::QuantizedLinearImpl(quantized, bias), panels);
  }

  at::Tensor vector(const std::string& name) const override {
    at::Tensor values = InitialWeights::vector(name);
    if (values.dim() != 1) return values;
    int64_t at = 0;
    for (const shard::Range& range : plan().slice(plan().require(name), rank()).columns) {
      values.narrow(0, at, range.length)
          .add_(at::arange(range.start, range.end(), at::kFloat).sin(), 0.3);
      at += range.length;
    }
    return values;
  }
};

struct Way {
  std::string family;
  ExpertSplit experts = ExpertSplit::kFfn;
  shard::HeadSplit heads = shard::HeadSplit::kKv;
};

std::shared_ptr<CausalLM> exact_model(const Way& way, const Group& group) {
  const ModelConfig config = test::enlarged_config(way.family);
  const auto header = header_of(config);
  WeightRules rules = find_family(config.family).rules(config, *header);
  cut_between_blocks(rules);
  if (way.experts == ExpertSplit::kExperts) split_by_experts(config, rules);
  set_head_split(way.heads, rules);
  const AgreedModel agreed(config, LoadPlan(*header, rules, group.size()), group, {"test", ""});
  InitOptions options;
  options.std = 0.05;
  options.seed = 1;
  return agreed.make(ExactWeights(agreed, group.rank(), options), {}, false);
}

at::Tensor text(int64_t batch = 1, int64_t tokens = 21) {
  return at::arange(batch * tokens).mul(31).remainder(61).view({batch, tokens});
}

// Each token's loss, of a vocabulary that no number of ranks cuts evenly.
at::Tensor losses(CausalLM& model) {
  nn::KvCache cache = model.make_cache(1, 21);
  return model.token_losses(model.forward(text(), &cache), text().roll(-1, 1));
}

// The text read whole and in pieces, and by one rank also token by token.
void expect_bits(CausalLM& model, const at::Tensor& expected, const std::string& name) {
  std::vector<std::vector<int64_t>> ways = {{21}, {17, 3, 1}};
  if (model.group().size() == 1) ways.emplace_back(21, 1);
  for (const std::vector<int64_t>& pieces : ways) {
    const at::Tensor got = test::logits_in_pieces(model, text(), pieces);
    EXPECT_TRUE(at::equal(got, expected))
        << name << ", " << pieces.size()
        << " pieces: " << (got - expected).abs().max().item<double>() << " off, from token "
        << (got != expected).any(2).nonzero().flatten()[1].item<int64_t>();
  }
}

void expect_same_bits(const std::string& family, const std::vector<int>& numbers) {
  test::on_ranks(
      [&](const Group& group) {
        const c10::InferenceMode inference;
        const auto heads = group.size() % 2 == 0 ? shard::HeadSplit::kKv : shard::HeadSplit::kEven;
        const auto whole = exact_model({family}, {});
        const at::Tensor expected = test::logits_in_pieces(*whole, text(), {21});
        ASSERT_TRUE(expected.isfinite().all().item<bool>());
        ASSERT_GT(expected.std().item<double>(), 1e-3);
        const at::Tensor expected_losses = losses(*whole);
        const bool has_experts = test::enlarged_config(family).experts.num_experts > 0;
        for (const ExpertSplit split : {ExpertSplit::kFfn, ExpertSplit::kExperts}) {
          if (split == ExpertSplit::kExperts && !has_experts) continue;
          const auto model = exact_model({family, split, heads}, group);
          const std::string name = core::join(
              family, split == ExpertSplit::kFfn ? "" : ", whole experts", " on ", group.size());
          expect_bits(*model, expected, name);
          EXPECT_TRUE(at::equal(losses(*model), expected_losses)) << name << ", losses";
          const int usual = at::get_num_threads();
          at::set_num_threads(usual == 1 ? 2 : 1);
          EXPECT_TRUE(at::equal(test::logits_in_pieces(*model, text(), {20, 1}), expected))
              << name << ", other threads";
          at::set_num_threads(usual);
        }
      },
      numbers);
}

// One token of each of 16 sequences with caches of their own, and 3 that share one, against each
// alone on one rank.
void expect_batches(const std::string& family, const Group& group) {
  const c10::InferenceMode inference;
  const auto whole = exact_model({family}, {}), model = exact_model({family}, group);
  constexpr int64_t kSequences = 16;
  std::vector<nn::KvCache> alone, together;
  std::vector<nn::KvCache*> all;
  at::Tensor ids_B = at::arange(kSequences).mul(7).remainder(61);
  for (int64_t i = 0; i < kSequences; ++i) {
    const at::Tensor own_BT = text(kSequences, 19).narrow(0, i, 1).narrow(1, 0, 1 + i);
    whole->forward(own_BT, &alone.emplace_back(whole->make_cache(1, 20)));
    model->forward(own_BT, &together.emplace_back(model->make_cache(1, 20)));
  }
  for (nn::KvCache& cache : together) all.push_back(&cache);
  for (const int64_t count : {1, 5, 16}) {
    const auto some = std::span(all).first(static_cast<size_t>(count));
    const at::Tensor got =
        model->logits(dynamic_cast<ReadsEach&>(*model).read_each(ids_B.narrow(0, 0, count), some));
    for (int64_t i = 0; i < count; ++i) {
      nn::KvCache& cache = alone[static_cast<size_t>(i)];
      const at::Tensor one =
          whole->logits(whole->forward(ids_B.narrow(0, i, 1).view({1, 1}), &cache));
      EXPECT_TRUE(at::equal(got[i], one[0]))
          << family << " on " << group.size() << ", " << i << " of " << count;
    }
  }
  const at::Tensor three = test::logits_in_pieces(*model, text(3), {17, 4});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        at::equal(three[i], test::logits_in_pieces(*whole, text(3).narrow(0, i, 1), {21})[0]))
        << family << " on " << group.size() << ", sequence " << i;
  }
}

class FamilySameBits : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilySameBits, OnAnyNumberOfRanks) { expect_same_bits(GetParam(), {1, 3}); }

INSTANTIATE_TEST_SUITE_P(All, FamilySameBits,
                         ::testing::Values("llama", "qwen3", "qwen3_moe", "mixtral", "qwen2_moe",
                                           "glm4_moe", "gpt_oss", "olmo2", "gemma4", "gemma4_moe",
                                           "gemma4_small", "lfm2", "qwen3_5", "qwen3_5_moe",
                                           "qwen3_next", "deepseek_v2", "deepseek_v3",
                                           "glm4_moe_lite"),
                         [](const auto& each) { return std::string(each.param); });

TEST(SameBits, InBatchesOfAnySize) {
  test::on_ranks(
      [](const Group& group) {
        for (const char* family : {"qwen3_moe", "olmo2", "lfm2", "qwen3_5"}) {
          expect_batches(family, group);
        }
      },
      {1, 3});
}

// Of kv heads that several ranks hold, and of shares that differ.
TEST(SameBits, OnOtherNumbersOfRanks) {
  expect_same_bits("qwen3", {2});
  expect_same_bits("deepseek_v3", {2});
  expect_same_bits("olmo2", {4});
  expect_same_bits("qwen2_moe", {4});
  expect_same_bits("llama", {5, 6});
}

TEST(SameBits, OnEveryBackend) {
  for (const dist::BackendName& backend : dist::known_backends()) {
    if (!backend.is_built || backend.id == dist::BackendId::kNccl) continue;
    test::run_ranks(
        3,
        [&](dist::World& world) {
          const c10::InferenceMode inference;
          for (const char* family : {"llama", "qwen3_moe", "olmo2"}) {
            const at::Tensor expected =
                test::logits_in_pieces(*exact_model({family}, {}), text(), {21});
            const auto model = exact_model({family}, world.group());
            EXPECT_TRUE(at::equal(test::logits_in_pieces(*model, text(), {4, 17}), expected))
                << family << " over " << world.backend();
          }
        },
        {.backend = backend.name});
  }
}

}  // namespace
}  // namespace weft::models
