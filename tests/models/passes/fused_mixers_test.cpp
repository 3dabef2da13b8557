// The fused pass of families whose token mixers are not plain attention, against the modules.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/enlarged_family.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/amx.h"
#include "weft/models/passes/mixers/fused_delta.h"
#include "weft/models/reads_each.h"
#include "weft/shard/layout.h"

namespace weft::models {
namespace {

using dist::Group;

const std::vector<std::string> kMixed = {
    "lfm2",         "qwen3_5",          "qwen3_5_moe", "qwen3_next",
    "deepseek_v2",  "deepseek_v2_lite", "deepseek_v3", "deepseek_v3_halves",
    "glm4_moe_lite"};

at::Tensor mixed_ids(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens).mul(31).remainder(61).view({batch, tokens});
}

// The norm of the difference by that of what is expected. Where scores are close, rounded
// activations pick another expert: of a mixture one row of sixteen may be any.
double relative_error(const at::Tensor& got_BTD, const at::Tensor& expected_BTD, bool has_experts) {
  const at::Tensor squares = (got_BTD - expected_BTD).square().sum(-1).flatten();
  const int64_t counted = squares.numel() - (has_experts ? squares.numel() / 16 : 0);
  const at::Tensor sum = std::get<0>(squares.sort()).narrow(0, 0, counted).sum();
  return std::sqrt(sum.item<double>()) / expected_BTD.norm().item<double>();
}

// Activations have 16 bits: with 8, rounding moves scores of experts so far that several rows take
// other experts, and how many do depends on the processor. With AMX, attention of a prompt rounds
// its numbers to bfloat16, whose roundings are 2^-9.
TEST(FusedMixers, GiveWhatTheModulesGive) {
  const double bound = core::has_amx() ? 0x1p-8 : 1e-3;
  test::on_ranks(
      [&](const Group& group) {
        const c10::InferenceMode inference;
        for (const std::string& name : kMixed) {
          const auto model = test::enlarged_family(name, group, 16);
          ASSERT_TRUE(dynamic_cast<ReadsEach&>(*model).reads_each(model->make_cache(1, 1))) << name;
          // The second is long enough for ranks to share its rows.
          for (const auto& [ids_BT, pieces] :
               {std::pair(mixed_ids(2, 9), std::vector<int64_t>{5, 1, 1, 2}),
                std::pair(mixed_ids(2, 43), std::vector<int64_t>{40, 3})}) {
            const at::Tensor whole_BTD = model->forward(ids_BT, nullptr);
            const at::Tensor got_BTD = test::in_pieces(*model, ids_BT, pieces);
            const bool has_experts = model->config().experts.num_experts > 0;
            EXPECT_LE(relative_error(got_BTD, whole_BTD, has_experts), bound) << name;
          }
        }
      },
      {1, 2});
}

// Sequences of a shared cache and of caches of their own, longer than what is computed together.
TEST(FusedDelta, MixesAsTheLayerDoes) {
  const c10::InferenceMode inference;
  constexpr int64_t kBatch = 2, kTokens = 150, kValueHeads = 6;
  const nn::DeltaHeads heads = {
      .num_key_heads = 3, .num_value_heads = kValueHeads, .key_dim = 5, .value_dim = 7};
  const auto layout = [](int64_t count) { return shard::make_layout({0, {}, 1}, count, 1, "t"); };
  const auto numbers = [](at::IntArrayRef sizes, uint64_t seed) {
    return test::seeded(sizes, seed, at::kFloat);
  };
  nn::GatedDeltaParts parts = {
      nn::ShortConvolution(numbers({heads.num_channels(), 1, 4}, 1), layout(heads.num_channels())),
      nn::HeadNumbers(numbers({kValueHeads}, 2), layout(kValueHeads)),
      nn::HeadNumbers(numbers({kValueHeads}, 3), layout(kValueHeads)),
      nn::HeadRMSNorm(numbers({heads.value_dim}, 4), 1e-6, Group())};
  FusedDelta::Layer layer;
  ASSERT_TRUE(layer.take_net(heads, parts));
  const nn::DeltaProjections all = {numbers({kBatch, kTokens, heads.num_channels()}, 5),
                                    numbers({kBatch, kTokens, heads.value_features()}, 6),
                                    numbers({kBatch, kTokens, kValueHeads}, 7),
                                    numbers({kBatch, kTokens, kValueHeads}, 8)};
  nn::KvCache::Options options = {.num_layers = 1,
                                  .batch = kBatch,
                                  .capacity = kTokens,
                                  .states = {nn::delta_state_sizes(heads, 3)}};
  nn::KvCache shared(options);
  options.batch = 1;
  std::vector<nn::KvCache> own;
  for (int64_t i = 0; i < kBatch; ++i) own.emplace_back(options);
  const std::vector<nn::KvCache*> one = {&shared}, each = {&own[0], &own[1]};
  const auto& states = shared.state(0);
  const nn::DeltaState expected_states = {at::zeros_like(states[0]), at::zeros_like(states[1])};
  FusedDelta delta;
  for (const auto& [start, count] :
       {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 140}, {143, 7}}) {
    const auto fill = [&, start = start, count = count](const at::Tensor& x, FloatRows& rows) {
      const at::Tensor part = x.narrow(1, start, count).contiguous();
      std::copy_n(part.const_data_ptr<float>(), part.numel(),
                  rows.of(kBatch * count, part.size(2)));
      return part;
    };
    const nn::DeltaProjections in = {
        fill(all.channels_BTc, delta.channels), fill(all.gates_BTf, delta.gates),
        fill(all.rates_BTv, delta.rates), fill(all.decays_BTv, delta.decays)};
    const at::Tensor expected = nn::gated_delta_net(heads, parts, in, {}, expected_states);
    for (const auto& caches : {one, each}) {
      const float* out = delta.run(layer, {{kBatch, count, caches, {}}, 0, 1e-6F});
      const at::Tensor got = at::from_blob(const_cast<float*>(out), expected.sizes(), at::kFloat);
      test::expect_close(got, expected, core::join("from ", start), 1e-5);
    }
    for (size_t i = 0; i < 2; ++i) {
      test::expect_close(states[i], expected_states[i], core::join("state from ", start), 1e-5);
      const at::Tensor apart = at::cat({own[0].state(0)[i], own[1].state(0)[i]});
      EXPECT_TRUE(apart.equal(states[i])) << start;
    }
  }
}

TEST(FusedMixers, ReadOneTokenOfEachSequenceAsAlone) {
  const c10::InferenceMode inference;
  for (const std::string& name : kMixed) {
    const auto model = test::enlarged_family(name, {});
    std::vector<nn::KvCache> alone, together;
    for (const int64_t length : {3, 7}) {
      for (std::vector<nn::KvCache>* caches : {&alone, &together}) {
        model->forward(mixed_ids(1, length), &caches->emplace_back(model->make_cache(1, 12)));
      }
    }
    const at::Tensor ids_B = at::tensor({11, 12}, at::kLong);
    const std::vector<nn::KvCache*> caches = {&together[0], &together[1]};
    const at::Tensor got_B1D = dynamic_cast<ReadsEach&>(*model).read_each(ids_B, caches);
    for (int64_t i = 0; i < 2; ++i) {
      const at::Tensor id_11 = ids_B.narrow(0, i, 1).unsqueeze(0);
      EXPECT_TRUE(
          at::equal(got_B1D.narrow(0, i, 1), model->forward(id_11, &alone[static_cast<size_t>(i)])))
          << name << " " << i;
    }
  }
}

}  // namespace
}  // namespace weft::models
