// Which pass a model gets, by the options of its configuration.
#include "weft/models/passes/pass_choice.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/panel_linear.h"

namespace weft::models {
namespace {

using testing::error_text;

using dist::Group;

ModelConfig plain_config() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 64;
  config.width = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.ffn_width = 128;
  config.max_positions = 32;
  return config;
}

ModelConfig config_with_experts() {
  ModelConfig config = plain_config();
  config.family = "mixtral";
  config.experts.num_experts = 3;
  config.experts.experts_per_token = 2;
  config.experts.ffn_width = 128;
  return config;
}

std::shared_ptr<CausalLM> panel_model(const ModelConfig& config, const Group& group = {}) {
  auto model = make_model(config, group);
  model->eval();
  nn::quantize(*model, {quant::Mode::kAffine, 4, 32});
  nn::put_in_panels(*model);
  return model;
}

// What the action writes to stderr.
std::string said(const std::function<void()>& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

TEST(OptionsInUse, AreNoneInThePlainDecoder) {
  EXPECT_TRUE(options_in_use(plain_config()).is_empty());
  ModelConfig config = plain_config();
  config.windows = {0, 0};
  config.rope_dims = config.head_dim;
  EXPECT_TRUE(options_in_use(config).is_empty()) << names_of(options_in_use(config));
}

TEST(OptionsInUse, NameEachFieldThatDiffers) {
  const std::vector<std::pair<std::function<void(ModelConfig&)>, std::string>> cases = {
      {[](auto& c) {
         c.windows = {0, 8};
       },
       "sliding windows"},
      {[](auto& c) { c.has_qkv_bias = true; }, "biases of queries, keys and values"},
      {[](auto& c) { c.has_output_bias = true; }, "biases of attention's output"},
      {[](auto& c) { c.has_mlp_bias = true; }, "biases of feed-forward layers"},
      {[](auto& c) { c.head_norms = HeadNorms::kEachHead; }, "norms of each head"},
      {[](auto& c) { c.head_norms = HeadNorms::kAllHeads; }, "norms over all heads"},
      {[](auto& c) { c.norm_placement = NormPlacement::kAfter; }, "norms after layers"},
      {[](auto& c) { c.norm_placement = NormPlacement::kBoth; }, "norms before and after layers"},
      {[](auto& c) { c.rope_dims = 8; }, "rope of a part of each head"},
      {[](auto& c) { c.layers_without_rope = {1}; }, "layers without rope"},
      {[](auto& c) { c.embedding_scale = 2; }, "a factor of the embedding"},
      {[](auto& c) { c.attention_scale = 0.5; }, "a factor of attention's scores"},
      {[](auto& c) { c.residual_scale = 0.5; }, "a factor of what layers add"},
      {[](auto& c) { c.logits_scale = 0.5; }, "a factor of the logits"},
      {[](auto& c) { c.experts.num_experts = 2; }, "experts"},
      {[](auto& c) { c.gating.activation = nn::Activation::kGeluTanh; },
       "gelu in feed-forward layers"},
      {[](auto& c) { c.gating.activation = nn::Activation::kClamped; },
       "clamped gates in feed-forward layers"},
      {[](auto& c) { c.score_cap = 5; }, "a cap of attention's scores"},
      {[](auto& c) { c.logits_cap = 5; }, "a cap of the logits"},
      {[](auto& c) { c.window_rope_base = 5; }, "a rope of layers with windows"},
      {[](auto& c) { c.query_growth = 0.1; }, "queries that grow with their position"},
      {[](auto& c) { c.has_sinks = true; }, "attention sinks"},
      {[](auto& c) { c.turns_neighbours = true; }, "rope of neighbours"},
      {[](auto& c) { c.full_layers.head_dim = 8; }, "other heads in layers without a window"},
      {[](auto& c) { c.norms_values = true; }, "norms of values"},
      {[](auto& c) { c.scales_layers = true; }, "factors of layers"},
      {[](auto& c) { c.layer_inputs.width = 8; }, "inputs of each layer"},
      {[](auto& c) { c.reusing.count = 1; }, "keys and values of other layers"},
  };
  ModelConfig all = plain_config();
  std::string names;
  for (const auto& [change, name] : cases) {
    ModelConfig config = plain_config();
    change(config);
    EXPECT_EQ(names_of(options_in_use(config)), name);
    const std::vector<std::string> others = {"norms over all heads",
                                             "norms before and after layers",
                                             "clamped gates in feed-forward layers"};
    if (std::ranges::find(others, name) != others.end()) continue;
    change(all);
    names += (names.empty() ? "" : ", ") + name;
  }
  EXPECT_EQ(names_of(options_in_use(all)), names);
}

TEST(PassChoice, TakesPanelsWhereTheirPassKnowsAll) {
  const c10::InferenceMode inference;
  ModelConfig config = config_with_experts();
  config.head_norms = HeadNorms::kEachHead;
  const auto model = panel_model(config);
  EXPECT_EQ(said([&] { EXPECT_EQ(model->make_cache(1, 3).dtype(), at::kHalf); }), "");
}

// Of a model with experts, and a pass that doesn't know them.
struct Choice {
  explicit Choice(bool is_wanted, const Group& group = {})
      : row{"the test",
            {Option::kQkvBias},
            std::nullopt,
            "each token takes longer",
            is_wanted ? [](const PassParts&) { return true; }
                      : [](const PassParts&) { return false; },
            nullptr},
        choice(parts(group), std::span(&row, 1)) {}

  static PassParts parts(const Group& group) {
    PassParts parts;
    parts.config = config_with_experts();
    parts.group = group;
    return parts;
  }
  std::string said_by_use() {
    return said([&] { EXPECT_EQ(&choice.best_for(nullptr), &choice.modules()); });
  }

  PassRow row;
  PassChoice choice;
};

TEST(PassChoice, SaysOnceWhichOptionCostsSpeed) {
  Choice choice(true);
  EXPECT_EQ(choice.said_by_use(),
            "weft: warn: models: the pass for the test can't compute experts; layers run one by "
            "one instead, so that each token takes longer\n");
  EXPECT_EQ(choice.said_by_use(), "");
}

// Weights that the pass does not want run as modules whatever their options: nothing is lost.
TEST(PassChoice, SaysNothingOfWeightsThatNoOtherPassWants) {
  EXPECT_EQ(Choice(false).said_by_use(), "");
}

// The first pass knows the model but no order of sums: it is not taken, and the refusal names what
// the second, which orders them, does not know.
TEST(PassChoice, RefusesWhatHasNoOrderOfSums) {
  const auto is_wanted = [](const PassParts&) { return true; };
  const std::array rows = {
      PassRow{"the first",
              {Option::kExperts, Option::kQkvBias},
              std::nullopt,
              "each token takes longer",
              is_wanted,
              nullptr},
      PassRow{"the second",
              {Option::kExperts, Option::kQkvBias},
              OptionSet{Option::kQkvBias},
              "each token takes longer",
              is_wanted,
              nullptr},
  };
  PassParts parts = Choice::parts({});
  parts.config.has_qkv_bias = true;
  parts.is_exact = true;
  PassChoice choice(parts, rows);
  EXPECT_EQ(error_text([&] { choice.best(); }),
            "ConfigError: models: the same bits on any number of ranks: experts, expected a model "
            "without; ask for the usual sums");
}

TEST(PassChoice, OneRankSpeaksForAll) {
  test::on_ranks(
      [](const Group& group) {
        EXPECT_EQ(Choice(true, group).said_by_use().empty(), group.rank() != 0);
      },
      {2});
}

}  // namespace
}  // namespace weft::models
