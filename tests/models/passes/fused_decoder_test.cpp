// The fused pass against the modules that it stands for.
#include "weft/models/passes/fused_decoder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/config/families.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {
namespace {

using dist::Group;
using test::in_pieces;
using test::on_ranks;
using testing::error_text;

bool is_family(const std::string& name) {
  return name == "llama" || name == "qwen2" || name == "qwen3" || name == "mistral";
}

void make_gemma4(const std::string& family, ModelConfig& config) {
  config.family = "gemma4_text";
  take_family_traits(config);
  config.windows = {5, 0};
  config.full_layers = {64, 1, family != "gemma 4 small"};
  config.rope_base = 300;
  config.window_rope_base = 30;
  config.attention_scale = 0.1;
  config.embedding_scale = 2;
  if (family != "gemma 4 small") return;
  config.num_layers = 4;
  config.windows = {5, 0, 5, 0};
  config.layer_inputs = {32, 97};
  config.reusing = {2, 768};
}

// A family, or options of a Llama.
ModelConfig dense_config(const std::string& family) {
  ModelConfig config;
  config.family = is_family(family) ? family : "llama";
  config.vocab_size = 97;
  config.width = 64;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.ffn_width = 384;
  config.max_positions = 64;
  if (family == "qwen3") config.head_norms = HeadNorms::kEachHead;
  config.has_qkv_bias = family == "qwen2";
  config.has_output_bias = config.has_mlp_bias = family == "llama";
  if (family == "mistral") config.windows = {5, 5};
  if (family == "norms after") {
    config.norm_placement = NormPlacement::kAfter;
    config.head_norms = HeadNorms::kAllHeads;
  }
  if (family == "factors") {
    config.residual_scale = 0.4;
    config.has_output_bias = config.has_mlp_bias = true;
  }
  if (family == "partial rope") {
    config.rope_dims = 12;
    config.layers_without_rope = {1};
    config.attention_scale = 0.1;
    config.embedding_scale = 3;
    config.logits_scale = 0.5;
  }
  if (family == "gemma") {
    config.norm_placement = NormPlacement::kBoth;
    config.head_norms = HeadNorms::kEachHead;
    config.norm_offset = 1;
    config.gating.activation = nn::Activation::kGeluTanh;
    config.windows = {5, 0};
    config.window_rope_base = 30;
    config.score_cap = 2;
    config.logits_cap = 3;
  }
  if (family.starts_with("gemma 4")) make_gemma4(family, config);
  if (family == "clamped") {
    config.gating = {nn::Activation::kClamped, 0.7};
    config.rope_scaling.original_positions = 5;
    config.query_growth = 0.3;
  }
  return config;
}

// Its linears in panels of 4 bits; norms and biases are no longer 1 and 0.
std::shared_ptr<CausalLM> seeded_panel_model(const std::string& family, const Group& group,
                                             uint64_t seed = 0, int64_t code_bits = 8) {
  InitOptions options;
  options.std = 0.2;
  options.seed = seed;
  auto model = make_model(dense_config(family), group, options);
  model->eval();
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) {
      parameter.detach().add_(at::arange(parameter.numel(), at::kFloat).sin(), 0.3);
    }
  }
  for (const auto& buffer : model->named_buffers()) {
    buffer.value().add_(at::arange(buffer.value().numel(), at::kFloat).cos(), -0.2);
  }
  quant::Scheme scheme;
  scheme.group_size = 32;
  scheme.scale_dtype = at::kHalf;
  nn::quantize(*model, scheme);
  const int64_t usual = 2 * 7 + 2;
  const int64_t held = nn::put_in_panels(*model, code_bits);
  EXPECT_TRUE(held == usual || family.starts_with("gemma 4")) << held;
  return model;
}

at::Tensor ids_of(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens).mul(31).remainder(97).view({batch, tokens});
}

// What rounds to one code or the next by the order of a sum may differ by a code.
struct Near {
  double mean = 3e-3;
  double most = 0.1;
};

void expect_near(const at::Tensor& x, const at::Tensor& expected, const std::string& what,
                 const Near& near = {}) {
  EXPECT_LE((x - expected).abs().max().item<double>(), near.most) << what;
  EXPECT_LE((x - expected).abs().mean().item<double>(), near.mean) << what;
}

TEST(FusedDecoder, GivesWhatTheModulesGive) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    for (const std::string family :
         {"llama", "qwen2", "qwen3", "mistral", "partial rope", "norms after", "factors", "gemma",
          "clamped", "gemma 4", "gemma 4 small"}) {
      const auto model = seeded_panel_model(family, group);
      // Its own, so it is this pass that runs.
      EXPECT_EQ(model->make_cache(1, 1).dtype(), at::kHalf) << family;
      const at::Tensor one_BT = ids_of(1, 12), few_BT = ids_of(3, 5), many_BT = ids_of(3, 20);
      const at::Tensor one = model->forward(one_BT, nullptr);
      const at::Tensor few = model->forward(few_BT, nullptr);
      model->set_cache_dtype(at::kFloat);
      expect_near(in_pieces(*model, one_BT, {12}), one, family);
      expect_near(in_pieces(*model, one_BT, {5, 1, 1, 4, 1}), one, family + " in pieces");
      expect_near(in_pieces(*model, few_BT, {2, 1, 2}), few, family + ", a batch in pieces");
      expect_near(in_pieces(*model, many_BT, {20}), model->forward(many_BT, nullptr),
                  family + ", a long sequence, maybe rounded to bfloat16", {1.5e-2});
    }
  });
}

void expect_shared_rows(const std::string& family, const Group& group) {
  const auto model = seeded_panel_model(family, group);
  model->set_cache_dtype(at::kFloat);
  for (const auto& [batch, tokens] : {std::pair{10, 39}, {31, 13}, {7, 64}}) {
    const at::Tensor ids_BT = ids_of(batch, tokens);
    const at::Tensor expected = model->forward(ids_BT, nullptr);
    const uint64_t calls = group.traffic().reduce_scatter.calls;
    expect_near(in_pieces(*model, ids_BT, {tokens}), expected,
                core::join(family, ", ", batch, " x ", tokens, " rows on ", group.size()),
                {1.5e-2, 0.2});
    const bool is_shared = group.size() > 1 && group.shares_memory();
    const auto sums = 2 * static_cast<uint64_t>(dense_config(family).num_layers);
    EXPECT_EQ(group.traffic().reduce_scatter.calls - calls, is_shared ? sums : 0u);
  }
}

// Where ranks share memory and rows are many, each norms its own.
TEST(FusedDecoder, SharesTheRowsOfLongPrompts) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    for (const std::string family :
         {"llama", "norms after", "factors", "gemma", "gemma 4", "gemma 4 small"}) {
      expect_shared_rows(family, group);
    }
  });
}

// Each token's numbers depend on no other token of its pass.
TEST(FusedDecoder, ReadsFewTokensAsOneByOneBitForBitWithNormsOverAllRanks) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    for (const std::string family : {"norms after", "factors"}) {
      const auto model = seeded_panel_model(family, group);
      const at::Tensor ids_BT = ids_of(1, 12);
      EXPECT_TRUE(at::equal(in_pieces(*model, ids_BT, {4, 8}),
                            in_pieces(*model, ids_BT, {4, 1, 1, 1, 1, 1, 1, 1, 1})))
          << family;
    }
  });
}

TEST(FusedDecoder, GivesTheSameWithACacheOfFloat16) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    for (const std::string family : {"llama", "mistral"}) {
      const auto model = seeded_panel_model(family, group, 0, 16);
      const at::Tensor one_BT = ids_of(1, 12), one = model->forward(one_BT, nullptr);
      test::expect_close(in_pieces(*model, one_BT, {5, 1, 1, 4, 1}), one, family, 1e-2);
      model->set_cache_dtype(at::kFloat);
      test::expect_close(in_pieces(*model, one_BT, {5, 1, 1, 4, 1}), one, family, 2e-3);
    }
  });
}

TEST(FusedDecoder, TakesUpAnotherLinear) {
  on_ranks([](const Group& group) {
    const c10::InferenceMode inference;
    const auto model = seeded_panel_model("llama", group),
               other = seeded_panel_model("llama", group, 1);
    model->set_cache_dtype(at::kFloat);
    const at::Tensor ids_BT = ids_of(1, 4);
    const at::Tensor before = in_pieces(*model, ids_BT, {4});
    const auto linears = nn::find_linears(*model), others = nn::find_linears(*other);
    for (size_t i = 0; i < linears.size(); ++i) {
      if (!linears[i].path.ends_with("down_proj")) continue;
      linears[i].holder->set_inner(others[i].holder->inner());
    }
    const at::Tensor after = in_pieces(*model, ids_BT, {4});
    EXPECT_GT((after - before).abs().max().item<double>(), 0.5);
    expect_near(after, model->forward(ids_BT, nullptr), "another linear");
  });
}

TEST(FusedDecoder, ItsCacheIsOfFloat16UnlessSaidOtherwise) {
  const c10::InferenceMode inference;
  const auto model = seeded_panel_model("llama", {});
  EXPECT_EQ(model->make_cache(1, 3).dtype(), at::kHalf);
  model->set_cache_dtype(at::kFloat);
  EXPECT_EQ(model->make_cache(1, 3).dtype(), at::kFloat);
  model->set_cache_dtype(std::nullopt);
  EXPECT_EQ(model->make_cache(1, 3).dtype(), at::kHalf);
  EXPECT_EQ(error_text([&] { model->set_cache_dtype(at::kBFloat16); }),
            "ConfigError: models.CausalLM: a cache of BFloat16, expected Float, Half or Char");
}

TEST(FusedDecoder, BlocksThatRunAsModulesReadAnyCache) {
  const c10::InferenceMode inference;
  ModelConfig config = dense_config("llama");
  config.head_dim = 32;
  const auto model = make_model(config, Group(), {});
  model->eval();
  EXPECT_EQ(model->make_cache(1, 3).dtype(), at::kFloat);
  const at::Tensor ids_BT = ids_of(1, 12), whole = model->forward(ids_BT, nullptr);
  test::expect_close(in_pieces(*model, ids_BT, {5, 1, 6}), whole, "float32", 1e-5);
  model->set_cache_dtype(at::kHalf);
  const at::Tensor half = in_pieces(*model, ids_BT, {5, 1, 6});
  test::expect_close(half, whole, "float16", 2e-3);
  EXPECT_FALSE(at::equal(half, whole));
  model->set_cache_dtype(at::kChar);
  test::expect_close(in_pieces(*model, ids_BT, {5, 1, 6}), whole, "8 bits", 2e-2);
}

TEST(FusedDecoder, ACacheOfOtherSequencesIsAnError) {
  const c10::InferenceMode inference;
  const auto model = seeded_panel_model("llama", {});
  nn::KvCache cache = model->make_cache(1, 3);
  EXPECT_EQ(error_text([&] { model->forward(ids_of(2, 2), &cache); }),
            "ConfigError: models.FusedDecoder: 2 sequences, expected 1 as the cache has");
}

TEST(FusedDecoder, ACacheThatIsFullIsAnError) {
  const c10::InferenceMode inference;
  const auto model = seeded_panel_model("llama", {});
  nn::KvCache cache = model->make_cache(1, 3);
  model->forward(ids_of(1, 2), &cache);
  EXPECT_EQ(error_text([&] { model->forward(ids_of(1, 2), &cache); }),
            "ConfigError: nn.KvCache: 4 positions, expected at most 3; use a larger --ctx-size or "
            "fewer tokens");
}

}  // namespace
}  // namespace weft::models
