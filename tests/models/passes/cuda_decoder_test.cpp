// The pass on the GPU against the modules that it stands for.
#include "weft/models/passes/cuda/cuda_decoder.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <map>

#include "tests/core/error_text.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "tests/support/needs_cuda.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {
namespace {

using dist::Group;
using test::expect_close;
using test::logits_in_pieces;
using testing::error_text;

ModelConfig cuda_config(const std::string& family) {
  ModelConfig config;
  const bool is_family = family == "qwen2" || family == "qwen3" || family == "mistral";
  config.family = is_family ? family : "llama";
  config.vocab_size = 48;
  config.width = 32;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = family == "qwen3" ? 72 : 16;
  config.ffn_width = 64;
  config.max_positions = 64;
  if (family == "qwen3") config.head_norms = HeadNorms::kEachHead;
  config.has_qkv_bias = family == "qwen2";
  config.has_output_bias = config.has_mlp_bias = family == "llama";
  if (family == "mistral") config.windows = {5, 5};
  if (family == "norms after") config.norm_placement = NormPlacement::kAfter;
  if (family == "factors") {
    config.residual_scale = 0.4;
    config.has_output_bias = config.has_mlp_bias = true;
  }
  if (family == "partial rope") {
    config.rope_dims = 6;
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
  if (family == "neighbours") {
    config.norm_placement = NormPlacement::kBoth;
    config.has_output_bias = true;
    config.rope_dims = 6;
    config.turns_neighbours = true;
    config.rope_scaling.original_positions = 5;
    config.query_growth = 0.3;
  }
  if (family == "sinks") {
    config.windows = {5, 0};
    config.has_sinks = true;
  }
  return config;
}

// The same weights on the processor, in 4 bits or plain, and on the GPU.
struct Models {
  Models(const std::string& family, const Group& group, bool is_quantized)
      : reference(make(family, group, is_quantized)), moved(make(family, group, is_quantized)) {
    std::map<const nn::LinearLike*, std::shared_ptr<nn::LinearLike>> made;
    for (const nn::HeldLinear& each : nn::find_linears(*moved)) {
      auto& own = made[each.holder->inner().get()];
      if (own == nullptr) own = nn::on_cuda(*each.holder->inner());
      keep.push_back(each.holder->inner());
      each.holder->set_inner(own);
    }
  }

  static std::shared_ptr<CausalLM> make(const std::string& family, const Group& group,
                                        bool is_quantized) {
    InitOptions options;
    options.std = 0.2;
    auto model = make_model(cuda_config(family), group, options);
    model->eval();
    for (const at::Tensor& parameter : model->parameters()) {
      if (parameter.dim() == 1) {
        parameter.detach().add_(at::arange(parameter.numel(), at::kFloat).sin(), 0.3);
      }
    }
    quant::Scheme scheme;
    scheme.group_size = 16;
    scheme.scale_dtype = at::kHalf;
    if (is_quantized) nn::quantize(*model, scheme);
    return model;
  }

  std::shared_ptr<CausalLM> reference, moved;
  std::vector<std::shared_ptr<nn::LinearLike>> keep;
};

at::Tensor cuda_ids(int64_t batch, int64_t tokens) {
  return at::arange(batch * tokens).mul(31).remainder(48).view({batch, tokens});
}

class CudaDecoderPass : public test::NeedsCuda {};

TEST_F(CudaDecoderPass, GoesOnFromPositionsThatWereCopied) {
  const c10::InferenceMode inference;
  const Models models("qwen3", {}, true);
  const at::Tensor ids_BT = cuda_ids(2, 12);
  nn::KvCache whole = models.moved->make_cache(2, 12);
  models.moved->forward(ids_BT.narrow(1, 0, 11), &whole);
  nn::KvCache page = models.moved->make_cache(2, 7);
  page.append_copy(whole, 2, 7);
  nn::KvCache other = models.moved->make_cache(2, 20);
  other.append_copy(whole, 0, 2);
  other.append_copy(page, 0, 7);
  other.append_copy(whole, 9, 2);
  const at::Tensor last_B1 = ids_BT.narrow(1, 11, 1);
  EXPECT_TRUE(
      at::equal(models.moved->forward(last_B1, &other), models.moved->forward(last_B1, &whole)));
}

TEST_F(CudaDecoderPass, GivesWhatTheModulesGive) {
  const c10::InferenceMode inference;
  for (const std::string family : {"llama", "qwen2", "qwen3", "mistral", "partial rope", "factors",
                                   "gemma", "neighbours", "sinks"}) {
    const Models models(family, {}, family != "qwen2");
    for (const int64_t batch : {1, 2}) {
      const at::Tensor ids_BT = cuda_ids(batch, 22);
      const at::Tensor expected =
          models.reference->logits(models.reference->forward(ids_BT, nullptr));
      const auto check = [&](const at::Tensor& got, const char* what) {
        expect_close(got, expected, core::join(family, ", ", batch, " sequences, ", what), 1e-4);
      };
      check(models.moved->logits(models.moved->forward(ids_BT, nullptr)), "alone");
      check(logits_in_pieces(*models.moved, ids_BT, {22}), "at once");
      check(logits_in_pieces(*models.moved, ids_BT, {10, 1, 1, 1, 4, 1, 1, 1, 1, 1}), "in pieces");
    }
  }
}

TEST_F(CudaDecoderPass, LeavesToTheModulesWhatItDoesNotKnow) {
  const c10::InferenceMode inference;
  const Models models("norms after", {}, true);
  const at::Tensor ids_BT = cuda_ids(1, 9);
  ::testing::internal::CaptureStderr();
  const at::Tensor got = logits_in_pieces(*models.moved, ids_BT, {6, 1, 2});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "weft: warn: models: the pass for the GPU can't compute norms after layers; layers run "
            "one by one instead, so that every product moves its numbers between the processor and "
            "the GPU\n");
  expect_close(got, models.reference->logits(models.reference->forward(ids_BT, nullptr)),
               "norms after", 1e-4);
}

TEST_F(CudaDecoderPass, FewTokensAtOnceHaveTheBitsOfOneByOne) {
  const c10::InferenceMode inference;
  for (const std::string family : {"llama", "gemma", "neighbours", "sinks"}) {
    const Models models(family, {}, true);
    const at::Tensor ids_BT = cuda_ids(1, 14);
    const at::Tensor expected = logits_in_pieces(*models.moved, ids_BT, {10, 1, 1, 1, 1});
    EXPECT_TRUE(at::equal(logits_in_pieces(*models.moved, ids_BT, {10, 4}), expected)) << family;
    EXPECT_TRUE(at::equal(logits_in_pieces(*models.moved, ids_BT, {10, 1, 3}), expected)) << family;
  }
}

TEST_F(CudaDecoderPass, ARecordedPassReadsItsPositionAnew) {
  const c10::InferenceMode inference;
  const Models models("llama", {}, true);
  const at::Tensor ids_BT = cuda_ids(1, 8);
  const at::Tensor expected = logits_in_pieces(*models.moved, ids_BT, {8});
  nn::KvCache cache = models.moved->make_cache(1, 8);
  for (int round = 0; round < 2; ++round) {
    for (int64_t t = 0; t < 8; ++t) {
      const at::Tensor x_BTD = models.moved->forward(ids_BT.narrow(1, t, 1), &cache);
      expect_close(models.moved->logits(x_BTD), expected.narrow(1, t, 1),
                   core::join("token ", t, " of round ", round), 1e-5);
    }
    cache.truncate(0);
    // Another cache in between, and more rows than before.
    expect_close(
        logits_in_pieces(*models.moved, cuda_ids(2, 8).narrow(0, 0, 1).expand({2, 8}), {8}),
        expected.expand({2, -1, -1}), "another cache", 1e-5);
  }
}

// The third of the single tokens is a recorded pass where sums do not travel.
void check_ranks(const Group& group) {
  cuda::select_device("test", group.rank());
  const c10::InferenceMode inference;
  for (const std::string family : {"llama", "gemma", "sinks"}) {
    const Models models(family, group, true);
    const at::Tensor ids_BT = cuda_ids(1, 9);
    const at::Tensor expected =
        models.reference->logits(models.reference->forward(ids_BT, nullptr));
    for (const std::string round : {"first", "second"}) {
      expect_close(logits_in_pieces(*models.moved, ids_BT, {6, 1, 1, 1}), expected,
                   core::join(family, ", ", group.size(), " ranks, ", round, " cache"), 1e-4);
    }
  }
}

TEST_F(CudaDecoderPass, RanksWithGpusOfTheirOwnGiveWhatOneGives) {
  test::on_ranks(check_ranks, {2});
}

TEST_F(CudaDecoderPass, RanksThatShareAGpuGiveWhatOneGives) {
  ::setenv("CUDA_ON_CPU_SHARED", "1", 1);
  test::on_ranks(check_ranks, {2});
  ::unsetenv("CUDA_ON_CPU_SHARED");
}

TEST_F(CudaDecoderPass, RefusesACacheThatDoesNotFit) {
  const c10::InferenceMode inference;
  const Models models("llama", {}, true);
  nn::KvCache of_cpu = models.reference->make_cache(1, 4);
  EXPECT_EQ(error_text([&] { models.moved->forward(cuda_ids(1, 2), &of_cpu); }),
            "ConfigError: models.CudaDecoder: a cache of the CPU, expected one on the GPU; make it "
            "of the model as it is now");
  models.moved->set_cache_dtype(at::kHalf);
  EXPECT_EQ(error_text([&] { models.moved->make_cache(1, 3); }),
            "ConfigError: models.CausalLM: a cache of Half on a GPU, expected Float");
  models.moved->set_cache_dtype(std::nullopt);
  nn::KvCache cache = models.moved->make_cache(1, 3);
  EXPECT_EQ(cache.num_bytes(), 2 * 2 * 2 * 3 * 16 * 4);
  EXPECT_EQ(error_text([&] { models.moved->forward(cuda_ids(2, 2), &cache); }),
            "ConfigError: models.CudaDecoder: 2 sequences, expected 1 as the cache has");
  models.moved->forward(cuda_ids(1, 2), &cache);
  EXPECT_EQ(error_text([&] { models.moved->forward(cuda_ids(1, 2), &cache); }),
            "ConfigError: nn.KvCache: 4 positions, expected at most 3; use a larger --ctx-size or "
            "fewer tokens");
  EXPECT_EQ(
      error_text([&] { models.reference->forward(cuda_ids(1, 1), &cache); }),
      "ConfigError: nn.KvCache.append: the cache lies on a GPU, expected one of tensors; make "
      "a new one of the model as it is now");
}

}  // namespace
}  // namespace weft::models
