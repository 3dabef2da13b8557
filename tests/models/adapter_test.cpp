// Adapters beside frozen weights, on any number of ranks, against the sum of both in one matrix.
#include "weft/models/adapter.h"

#include <c10/core/InferenceMode.h>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/models/model_logits.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"
#include "weft/nn/adapters/adapter_scope.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/dense_linear.h"

namespace weft::models {
namespace {

using dist::Group;
using test::logits_of;
using test::model_data;
using test::on_ranks;
using test::seeded;
using testing::error_text;

// Adapters with any factors of the sizes that they name.
class MadeUpAdapters : public AdapterSource {
 public:
  explicit MadeUpAdapters(std::vector<AdapterLayer> layers)
      : AdapterSource("made-up", std::move(layers)) {}

  nn::LoraFactors read(const AdapterLayer& layer) const override {
    const auto seed = static_cast<uint64_t>(layer.place.size() + static_cast<size_t>(layer.in));
    return {seeded({layer.rank, layer.in}, seed, at::kFloat) * 0.2,
            seeded({layer.out, layer.rank}, seed + 1, at::kFloat) * 0.2, layer.scale};
  }
};

AdapterLayer layer_of(const std::string& place, int64_t in, int64_t out) {
  AdapterLayer layer;
  layer.place = place;
  layer.rank = 3;
  layer.in = in;
  layer.out = out;
  layer.scale = 2.5;
  return layer;
}

// Of every kind of layer of a model: width 48, 6 heads of 8, 2 kv heads, ffn 44, vocabulary 101.
std::vector<AdapterLayer> llama_layers() {
  return {layer_of("model.layers.0.self_attn.q_proj", 48, 48),
          layer_of("model.layers.1.self_attn.k_proj", 48, 16),
          layer_of("model.layers.1.self_attn.o_proj", 48, 48),
          layer_of("model.layers.0.mlp.up_proj", 48, 44),
          layer_of("model.layers.0.mlp.down_proj", 44, 48),
          layer_of("lm_head", 48, 101)};
}

// Of one expert, the router, and the expert that all tokens go through: width 32.
std::vector<AdapterLayer> experts_layers() {
  return {layer_of("model.layers.0.mlp.experts.1.gate_proj", 32, 12),
          layer_of("model.layers.1.mlp.experts.4.down_proj", 12, 32),
          layer_of("model.layers.0.mlp.gate", 32, 6),
          layer_of("model.layers.1.mlp.shared_expert.up_proj", 32, 20)};
}

// The same by definition: W + scale B A, of the whole.
void add_products(CausalLM& whole, const AdapterSource& adapters) {
  for (const nn::HeldLinear& held : nn::find_linears(whole)) {
    for (const AdapterLayer& layer : adapters.layers()) {
      if (layer.place != held.path) continue;
      const nn::LoraFactors factors = adapters.read(layer);
      const at::Tensor sum =
          held.holder->inner()->dense_weight() + at::matmul(factors.b, factors.a) * factors.scale;
      held.holder->set_inner(
          std::make_shared<nn::DenseLinearImpl>(sum, held.holder->inner()->bias_or_undefined()));
    }
  }
}

void expect_sums(const Group& group, const std::string& path,
                 const std::vector<AdapterLayer>& layers) {
  const MadeUpAdapters adapters(layers);
  const auto file = io::TensorFile::open(model_data(path));
  const at::Tensor ids_BT = at::arange(3, 20, at::kLong).unsqueeze(0);
  const auto whole = load_model(*file, {}).model;
  const at::Tensor without_TV = logits_of(*whole, ids_BT);
  add_products(*whole, adapters);
  const at::Tensor expected_TV = logits_of(*whole, ids_BT);
  EXPECT_GT((expected_TV - without_TV).abs().max().item<double>(), 1e-2) << path;
  check_adapter(adapters, make_plan(*file, group.size()), path);
  const auto model = load_model(*file, group).model;
  const int64_t bytes = model->weight_bytes();
  attach_adapter(*model, adapters);
  EXPECT_LE((logits_of(*model, ids_BT) - expected_TV).abs().max().item<double>(), 1e-4) << path;
  EXPECT_GT(model->weight_bytes(), bytes);
}

TEST(Adapter, BesideTheWeightsIsTheirSumOnAnyNumberOfRanks) {
  on_ranks([](const Group& group) {
    expect_sums(group, "families/llama", llama_layers());
    expect_sums(group, "families/llama/model.gguf", llama_layers());
    expect_sums(group, "families/qwen2_moe", experts_layers());
  });
}

// The logits of a token behind three others.
at::Tensor logits_of_one(CausalLM& model, int64_t adapter) {
  const c10::InferenceMode inference;
  const nn::AdapterScope scope({&adapter, 1});
  nn::KvCache cache = model.make_cache(1, 8);
  model.forward(at::tensor({5, 17, 60}, at::kLong).unsqueeze(0), &cache);
  return model.logits(model.forward(at::full({1, 1}, 2, at::kLong), &cache));
}

// Latent attention turns what makes keys and values into numbers once, for each adapter its own.
TEST(Adapter, OfLatentAttentionIsThatOfTheTokensSequence) {
  const auto make = [] {
    auto model = load_model(*io::TensorFile::open(model_data("families/deepseek_v2")), {}).model;
    quant::Scheme scheme;
    scheme.bits = 8;
    scheme.group_size = 8;
    nn::quantize(*model, scheme,
                 [](const std::string& path) { return path.ends_with("kv_b_proj"); });
    for (const int64_t number : {1, 2}) {
      AdapterLayer layer = layer_of("model.layers.1.self_attn.kv_b_proj", 16, 80);
      layer.scale = number == 1 ? 2 : -3;
      attach_adapter(*model, MadeUpAdapters({layer}), number);
    }
    return model;
  };
  std::vector<at::Tensor> expected;
  for (const int64_t number : {0, 1, 2}) expected.push_back(logits_of_one(*make(), number));
  EXPECT_GT((expected[1] - expected[0]).abs().max().item<double>(), 1e-3);
  const auto model = make();
  for (const int64_t number : {1, 2, 0, 1, 1, 0, 2}) {
    const at::Tensor got = logits_of_one(*model, number);
    EXPECT_TRUE(at::equal(got, expected[static_cast<size_t>(number)])) << number;
  }
}

TEST(Adapter, OfAnotherModelIsRefusedFromHeadersAlone) {
  const auto file = io::TensorFile::open(model_data("families/llama"));
  const LoadPlan plan = make_plan(*file, 2);
  const auto refusal = [&](std::vector<AdapterLayer> layers) {
    const MadeUpAdapters adapters(std::move(layers));
    return error_text([&] { check_adapter(adapters, plan, "MODEL"); });
  };
  EXPECT_EQ(refusal(llama_layers()), "no error");
  EXPECT_EQ(refusal({}), "ConfigError: made-up: has no adapters, expected at least one layer's");
  EXPECT_EQ(refusal({layer_of("model.layers.7.self_attn.q_proj", 48, 48)}),
            "ConfigError: made-up: adapts layer 'model.layers.7.self_attn.q_proj', which 'MODEL' "
            "has not; give the model that it was trained on");
  EXPECT_EQ(refusal({layer_of("model.norm", 48, 48)}),
            "ConfigError: made-up: adapts layer 'model.norm', which 'MODEL' has not; give the "
            "model that it was trained on");
  EXPECT_EQ(refusal({layer_of("model.layers.0.self_attn.k_proj", 48, 48)}),
            "ConfigError: made-up: model.layers.0.self_attn.k_proj: A [3, 48] and B [48, 3], "
            "expected [r, 48] and [16, r] for 'MODEL'; give the model that it was trained on");
}

TEST(Adapter, OfALayerThatHasOneIsRefused) {
  const auto model = load_model(*io::TensorFile::open(model_data("families/llama")), {}).model;
  const MadeUpAdapters adapters({layer_of("model.layers.0.self_attn.q_proj", 48, 48)});
  attach_adapter(*model, adapters);
  EXPECT_EQ(error_text([&] { attach_adapter(*model, adapters); }),
            "ConfigError: nn.attach_lora: model.layers.0.self_attn.q_proj has an adapter already");
}

}  // namespace
}  // namespace weft::models
