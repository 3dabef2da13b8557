// What a decoder may compute otherwise, against formulas of the whole in float64: forward and all
// gradients on any number of ranks.
#include <functional>
#include <map>

#include "tests/models/decoder/formulas.h"
#include "tests/nn/parameter_part.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::part_of;

struct OptionCase {
  std::string name;
  std::function<void(ModelConfig&)> change;
};

void norm_after_over_all_heads(ModelConfig& config) {
  config.norm_placement = NormPlacement::kAfter;
  config.head_norms = HeadNorms::kAllHeads;
}

// Options of single layers: activations, caps, ropes, sinks.
std::vector<OptionCase> cases_of_layers() {
  return {
      {"gelu", [](auto& c) { c.gating.activation = nn::Activation::kGeluTanh; }},
      {"clamped gates",
       [](auto& c) {
         c.gating = {nn::Activation::kClamped, 0.7};
       }},
      {"caps",
       [](auto& c) {
         c.score_cap = 0.8;
         c.logits_cap = 1.5;
       }},
      {"a rope of windows",
       [](auto& c) {
         c.windows = {0, 3};
         c.window_rope_base = 30;
       }},
      {"sinks", [](auto& c) { c.has_sinks = true; }},
      {"rope of neighbours",
       [](auto& c) {
         c.turns_neighbours = true;
         c.rope_dims = 4;
       }},
      {"convolutions",
       [](auto& c) {
         c.family = "lfm2";
         c.width = 26;
         c.num_layers = 3;
         c.head_norms = HeadNorms::kEachHead;
         c.recurrent.layers = {0, 2};
         c.recurrent.num_taps = 3;
       }},
      {"gated delta nets",
       [](auto& c) {
         c.family = "qwen3_5_text";
         c.num_layers = 3;
         c.recurrent = {
             .layers = {0, 2},
             .kind = RecurrentKind::kGatedDelta,
             .num_taps = 3,
             .heads = {.num_key_heads = 5, .num_value_heads = 10, .key_dim = 6, .value_dim = 4}};
         take_family_traits(c);
         c.rope_dims = 4;
         // Small values behind the delta rule would make rounding large.
         c.norm_eps = 0.05;
       }},
      {"queries that grow",
       [](auto& c) {
         c.rope_scaling.original_positions = 3;
         c.query_growth = 0.5;
       }},
  };
}

// Gemma 4's.
std::vector<OptionCase> cases_of_two_kinds() {
  return {
      {"layers of two kinds",
       [](auto& c) {
         c.family = "gemma4_text";
         take_family_traits(c);
         c.num_layers = 3;
         c.windows = {3, 0, 3};
         c.full_layers = {16, 3, true};
         c.rope_base = 30;
         c.window_rope_base = 10;
       }},
      {"layers of two kinds, each with values",
       [](auto& c) {
         c.family = "gemma4_text";
         take_family_traits(c);
         c.windows = {3, 0};
         c.full_layers = {12, 1, false};
         c.has_qkv_bias = c.has_output_bias = true;
       }},
  };
}

// Kv heads are replicated on some ranks of 3 and 4, or cut unevenly.
std::vector<OptionCase> cases() {
  std::vector<OptionCase> all = {
      {"plain", [](auto& /*config*/) {}},
      {"norms after", [](auto& c) { c.norm_placement = NormPlacement::kAfter; }},
      {"norms before and after, of weights less 1",
       [](auto& c) {
         c.norm_placement = NormPlacement::kBoth;
         c.head_norms = HeadNorms::kEachHead;
         c.norm_offset = 1;
       }},
      {"norms over all heads", [](auto& c) { c.head_norms = HeadNorms::kAllHeads; }},
      {"norms over all of 5 heads",
       [](auto& c) {
         c.num_heads = c.num_kv_heads = 5;
         norm_after_over_all_heads(c);
       }},
      {"rope of a part", [](auto& c) { c.rope_dims = 4; }},
      {"a layer without rope", [](auto& c) { c.layers_without_rope = {1}; }},
      {"factors",
       [](auto& c) {
         c.embedding_scale = 3;
         c.attention_scale = 0.2;
         c.residual_scale = 0.4;
         c.logits_scale = 0.3;
       }},
      {"factors and a tied head",
       [](auto& c) {
         c.is_tied = true;
         c.embedding_scale = 3;
         c.logits_scale = 0.3;
       }},
      {"biases", [](auto& c) { c.has_qkv_bias = c.has_output_bias = c.has_mlp_bias = true; }},
      {"all",
       [](auto& c) {
         norm_after_over_all_heads(c);
         c.has_qkv_bias = c.has_output_bias = c.has_mlp_bias = true;
         c.rope_dims = 6;
         c.layers_without_rope = {0};
         c.windows = {0, 3};
         c.attention_scale = 0.3;
         c.residual_scale = 0.6;
       }},
  };
  for (const OptionCase& c : cases_of_layers()) all.push_back(c);
  for (const OptionCase& c : cases_of_two_kinds()) all.push_back(c);
  return all;
}

ModelConfig config_with(const OptionCase& c) {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 29;
  config.width = 24;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.ffn_width = 20;
  config.max_positions = 16;
  c.change(config);
  return config;
}

// Norms and biases are no longer 1 and 0: element i of a whole gets the same on any ranks.
std::shared_ptr<CausalLM> model_with(const OptionCase& c, const Group& group) {
  InitOptions options;
  options.std = 0.3;
  auto model = make_model(config_with(c), group, options);
  for (const auto& info : nn::describe_parameters(*model)) {
    if (info.sizes.size() != 1) continue;
    const double phase = static_cast<double>(info.name.size());
    const at::Tensor change = (at::arange(info.sizes[0], at::kDouble) + phase).sin() * 0.3;
    info.tensor.detach().add_(part_of(change, info, group.rank()));
  }
  for (const auto& buffer : model->named_buffers()) {
    if (buffer.key().ends_with(".layer_scalar")) buffer.value().fill_(0.8);
  }
  return model;
}

TokenBatch batch() { return {at::arange(14, at::kLong).view({2, 7}).remainder(11) + 3}; }
at::Tensor targets() { return at::arange(14, at::kLong).view({2, 7}).remainder(9) + 1; }

void expect_formula_gradients(const CausalLM& model, const Formulas& formulas,
                              const std::string& what) {
  const auto partial = model.partial_parameters();
  for (const auto& info : nn::describe_parameters(model)) {
    ASSERT_TRUE(info.tensor.grad().defined()) << what << " " << info.name;
    at::Tensor gradient = info.tensor.grad().clone();
    if (std::ranges::find(partial, info.name) != partial.end()) model.group().all_reduce(gradient);
    expect_close(gradient, part_of(formulas.at(info.name).grad(), info, model.group().rank()),
                 what + " " + info.name, 1e-5);
  }
}

void expect_training(const Group& group, const OptionCase& c, bool cuts_rows) {
  const Formulas formulas(*model_with(c, {}));
  const auto model = model_with(c, group);
  const std::string what =
      core::join(c.name, " on ", group.size(), cuts_rows ? ", cut along the sequence" : "");
  const at::Tensor expected = formulas.losses(batch().ids_BT, targets());
  expected.sum().backward();
  TrainingOptions training;
  training.sequence_parallel = cuts_rows;
  model->set_training(training);
  const at::Tensor losses = model->token_losses(model->forward(batch()), targets());
  expect_close(losses, expected, what, 1e-5);
  losses.sum().backward();
  expect_formula_gradients(*model, formulas, what);
}

TEST(DecoderOptions, GiveLossesAndGradientsOfTheFormulasOnAnyRanks) {
  test::on_ranks([](const Group& group) {
    for (const OptionCase& c : cases()) expect_training(group, c, false);
  });
}

TEST(DecoderOptions, GiveTheSameWhereTheResidualStreamIsCut) {
  test::on_ranks([](const Group& group) {
    for (const OptionCase& c : cases()) expect_training(group, c, true);
  });
}

at::Tensor batch_losses(CausalLM& model) {
  at::Tensor losses = model.token_losses(model.forward(batch()), targets());
  losses.sum().backward();
  return losses;
}

void expect_gradients_of_one_rank(const OptionCase& c) {
  test::on_ranks([&](const Group& group) {
    const auto whole = model_with(c, {}), model = model_with(c, group);
    // In float32 scores that are not scaled round to more than the tolerance.
    whole->to(at::kDouble);
    model->to(at::kDouble);
    const at::Tensor expected = batch_losses(*whole);
    expect_close(batch_losses(*model), expected, c.name + ", losses", 1e-5);
    std::map<std::string, at::Tensor> gradients;
    for (const auto& info : nn::describe_parameters(*whole)) {
      gradients[info.name] = info.tensor.grad();
    }
    for (const auto& info : nn::describe_parameters(*model)) {
      ASSERT_TRUE(info.tensor.grad().defined()) << info.name;
      expect_close(info.tensor.grad(), part_of(gradients.at(info.name), info, group.rank()),
                   core::join(c.name, ", ", info.name, " on ", group.size()), 1e-5);
    }
  });
}

// Gemma 4's small models: layers get features of a second embedding, and read others' keys.
TEST(DecoderOptions, GiveTheGradientsOfOneRankWithInputsOfLayersAndKeysOfOthers) {
  expect_gradients_of_one_rank({"gemma4", [](ModelConfig& config) {
                                  config.family = "gemma4_text";
                                  take_family_traits(config);
                                  config.num_layers = 4;
                                  config.windows = {3, 0, 3, 0};
                                  config.full_layers = {12, 2, false};
                                  config.layer_inputs = {10, 29};
                                  config.reusing = {2, 36};
                                }});
}

// gpt-oss: experts with biases, one of which is added by one of the ranks that share an expert.
TEST(DecoderOptions, GiveTheGradientsOfOneRankWithBiasedExperts) {
  const OptionCase oss = {"gpt-oss", [](ModelConfig& config) {
                            config.family = "gpt_oss";
                            take_family_traits(config);
                            config.experts.num_experts = 4;
                            config.experts.experts_per_token = 2;
                            config.experts.ffn_width = 20;
                            config.gating.limit = 0.7;
                          }};
  expect_gradients_of_one_rank(oss);
}

TEST(DecoderOptions, GiveTheSameThroughACache) {
  test::on_ranks([](const Group& group) {
    const at::NoGradGuard no_grad;
    for (const OptionCase& c : cases()) {
      const auto model = model_with(c, group);
      const at::Tensor ids_BT = batch().ids_BT;
      nn::KvCache cache = model->make_cache(2, 7);
      std::vector<at::Tensor> parts;
      for (const int64_t tokens : {4, 1, 2}) {
        const at::Tensor piece_BT = ids_BT.narrow(1, cache.length(), tokens);
        parts.push_back(model->logits(model->forward(piece_BT, &cache)));
      }
      expect_close(at::cat(parts, 1), Formulas(*model_with(c, {})).logits(ids_BT), c.name, 1e-5);
    }
  });
}

}  // namespace
}  // namespace weft::models
