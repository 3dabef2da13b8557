// What a model's matrices read, against the same model written down in libtorch.
#include "weft/models/quantize/collect.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <cmath>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/support/run_ranks.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {
namespace {

using dist::Group;
using testing::error_text;

// Two chunks of 8, and two tokens that are no chunk.
const std::vector<int64_t> kTokens = {5,  17, 60, 2, 33, 8, 51, 4, 12,
                                      57, 30, 6,  6, 54, 9, 20, 3, 1};
constexpr int64_t kChunk = 8, kChunks = 2, kFirst = 1;
constexpr uint64_t kSeed = 7;

CollectOptions options_of_test() {
  CollectOptions options;
  options.context = kChunk;
  options.first_token = kFirst;
  options.seed = kSeed;
  return options;
}

Importance collected(const std::string& family, const Group& group, const CollectOptions& options,
                     const LoadOptions& load = {}) {
  LoadOptions own = load;
  own.is_trainable = options.takes_products;
  const LoadedModel loaded =
      load_model(*io::TensorFile::open(test::family_path(family)), group, own);
  for (const nn::HeldLinear& held : nn::find_linears(*loaded.model)) {
    const at::NoGradGuard no_grad;
    // Attention is then the mean of all values so far.
    if (held.path.ends_with("q_proj")) nn::held_weight(*held.holder->inner()).zero_();
  }
  int64_t seen = 0;
  Importance importance =
      collect_importance(*loaded.model, kTokens, options, [&](int64_t done, int64_t chunks) {
        EXPECT_EQ(done, ++seen);
        EXPECT_EQ(chunks, kChunks);
      });
  EXPECT_EQ(seen, kChunks);
  return importance;
}

// A plain Llama without queries.
class DirectLlama {
 public:
  DirectLlama()
      : file_(io::TensorFile::open(test::family_path("llama"))), config_(read_config(*file_)) {}

  // Adds up squares and products of one chunk; the loss is summed over the tokens that have a next,
  // which is drawn.
  void read(const at::Tensor& ids_T) {
    const at::Tensor table = weight("model.embed_tokens").requires_grad_(false);
    at::Tensor x_TD = table.index_select(0, ids_T).requires_grad_(true);
    const at::Tensor embedded = x_TD;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) x_TD = block(layer, x_TD);
    const at::Tensor logits = multiply("output", "lm_head", norm(x_TD, "model.norm"));
    const int64_t last = ids_T.size(0) - 1;
    const at::Tensor p_TV = logits.detach().softmax(-1);
    const at::Tensor drawn_T =
        at::multinomial(p_TV.narrow(0, 0, last), 1, false, draws_).squeeze(1);
    at::cross_entropy_loss(logits.narrow(0, 0, last), drawn_T, {}, at::Reduction::Sum).backward();
    for (const auto& [name, x, y] : calls_) {
      add(squares, name, x.square().sum(0));
      at::Tensor counts_T1 = y.grad().square().mean(1, true);
      // What all draws give on average.
      if (name == "output.weight") {
        counts_T1 = (p_TV * (1 - p_TV)).mean(1, true);
        counts_T1[last] = 0;
      }
      add(products, name, x.t().matmul(x * counts_T1));
    }
    add(products, "token_embd.weight",
        (embedded.grad().square().sum(0) / config_.vocab_size).diag());
    calls_.clear();
  }

  std::map<std::string, at::Tensor> squares, products;

 private:
  struct Call {
    std::string name;
    at::Tensor x, y;
  };

  at::Tensor weight(const std::string& name) const {
    return io::load_tensor(*file_, name + ".weight", at::kFloat);
  }

  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return x * (x.square().mean(-1, true) + config_.norm_eps).rsqrt() * weight(name);
  }

  at::Tensor multiply(const std::string& gguf, const std::string& name, const at::Tensor& x) {
    at::Tensor y = x.matmul(weight(name).t());
    y.retain_grad();
    calls_.push_back({gguf + ".weight", x.detach(), y});
    return y;
  }

  at::Tensor block(int64_t layer, const at::Tensor& x_TD) {
    const std::string name = core::join("model.layers.", layer, "."),
                      gguf = core::join("blk.", layer, ".");
    const at::Tensor a = norm(x_TD, name + "input_layernorm");
    for (const char* part : {"q", "k"}) {
      add(squares, gguf + "attn_" + part + ".weight", a.detach().square().sum(0));
    }
    const at::Tensor v = multiply(gguf + "attn_v", name + "self_attn.v_proj", a);
    const at::Tensor counts_T1 = at::arange(1, v.size(0) + 1).unsqueeze(1);
    const at::Tensor means = (v.cumsum(0) / counts_T1)
                                 .reshape({v.size(0), config_.num_kv_heads, config_.head_dim})
                                 .repeat_interleave(config_.num_heads / config_.num_kv_heads, 1)
                                 .reshape({v.size(0), -1});
    const at::Tensor h_TD = x_TD + multiply(gguf + "attn_output", name + "self_attn.o_proj", means);
    const at::Tensor b = norm(h_TD, name + "post_attention_layernorm");
    const at::Tensor hidden = at::silu(multiply(gguf + "ffn_gate", name + "mlp.gate_proj", b)) *
                              multiply(gguf + "ffn_up", name + "mlp.up_proj", b);
    return h_TD + multiply(gguf + "ffn_down", name + "mlp.down_proj", hidden);
  }

  static void add(std::map<std::string, at::Tensor>& sums, const std::string& name,
                  const at::Tensor& more) {
    const auto [entry, is_new] = sums.try_emplace(name, more);
    if (!is_new) entry->second = entry->second + more;
  }

  std::shared_ptr<const io::TensorFile> file_;
  ModelConfig config_;
  std::vector<Call> calls_;
  at::Generator draws_ = at::make_generator<at::CPUGeneratorImpl>(kSeed);
};

DirectLlama read_directly() {
  DirectLlama direct;
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    at::Tensor ids = at::tensor(kTokens, at::kLong).narrow(0, chunk * kChunk, kChunk).clone();
    ids[0] = kFirst;
    direct.read(ids);
  }
  return direct;
}

void expect_close_inputs(const at::Tensor& got, const at::Tensor& expected,
                         const std::string& name) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << name;
  const double error = (got - expected).norm().item<double>();
  EXPECT_LE(error, 1e-4 * expected.norm().item<double>()) << name;
}

TEST(CollectImportance, SumsWhatTheModelWrittenInLibtorchReads) {
  const DirectLlama direct = read_directly();
  for (const int ranks : {1, 2, 3}) {
    test::run_ranks(ranks, [&](dist::World& world) {
      const Importance got = collected("llama", world.group(), options_of_test());
      EXPECT_EQ(got.num_chunks, kChunks);
      EXPECT_EQ(got.chunk_size, kChunk);
      EXPECT_EQ(got.tensors.size(), direct.squares.size());
      for (const auto& [name, squares] : direct.squares) {
        ASSERT_TRUE(got.tensors.contains(name)) << name;
        expect_close_inputs(got.tensors.at(name).squares, squares.unsqueeze(0), name);
        EXPECT_TRUE(at::equal(got.tensors.at(name).counts, at::full({1}, 16.0F))) << name;
      }
    });
  }
}

TEST(CollectImportance, ProductsCountTheGradientsOfWhatMatricesReturn) {
  const DirectLlama direct = read_directly();
  CollectOptions options = options_of_test();
  options.takes_products = true;
  const Importance got = collected("llama", Group(), options);
  for (const auto& [name, products] : direct.products) {
    ASSERT_TRUE(got.tensors.contains(name)) << name;
    expect_close_inputs(got.tensors.at(name).products, products, name);
  }
}

// Experts that a rank has alone, too: each counts the tokens that were sent to it.
TEST(CollectImportance, CountsTheTokensOfEachExpert) {
  const Importance whole = collected("mixtral", Group(), options_of_test());
  const InputStatistics& down = whole.tensors.at("blk.1.ffn_down_exps.weight");
  EXPECT_EQ(down.squares.sizes(), (std::vector<int64_t>{4, 28}));
  EXPECT_EQ(down.counts.sum().item<float>(), 2 * kChunks * kChunk);
  for (const ExpertSplit split : {ExpertSplit::kFfn, ExpertSplit::kExperts}) {
    test::run_ranks(2, [&](dist::World& world) {
      LoadOptions load;
      load.expert_split = split;
      const Importance cut = collected("mixtral", world.group(), options_of_test(), load);
      ASSERT_EQ(cut.tensors.size(), whole.tensors.size());
      for (const auto& [name, expected] : whole.tensors) {
        expect_close_inputs(cut.tensors.at(name).squares, expected.squares, name);
        EXPECT_TRUE(at::equal(cut.tensors.at(name).counts, expected.counts)) << name;
      }
    });
  }
}

TEST(CollectImportance, RefusesWhatIsNoChunk) {
  const LoadedModel loaded = load_model(*io::TensorFile::open(test::family_path("llama")), Group());
  const auto error = [&](const std::vector<int64_t>& tokens) {
    return error_text([&] {
      collect_importance(*loaded.model, tokens, options_of_test(), [](int64_t, int64_t) {});
    });
  };
  EXPECT_EQ(error({1, 2, 3}),
            "ConfigError: models.collect_importance: a text of 3 tokens, expected at least 8, one "
            "chunk; give a longer one or smaller chunks");
  EXPECT_EQ(
      error({1, 2, 3, 4, 5, 6, 7, 101}),
      "ConfigError: models.collect_importance: token 101, expected one below the vocabulary's "
      "101");
}

TEST(CollectImportance, RefusesProductsOfAModelThatSaysNoNumbers) {
  LoadOptions load;
  load.is_trainable = true;
  const LoadedModel loaded =
      load_model(*io::TensorFile::open(test::family_path("llama")), Group(), load);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& weight : loaded.model->parameters()) weight.fill_(NAN);
  }
  CollectOptions options = options_of_test();
  options.takes_products = true;
  EXPECT_EQ(error_text([&] {
              collect_importance(*loaded.model, kTokens, options, [](int64_t, int64_t) {});
            }),
            "FormatError: models.collect_importance: logits, expected finite numbers, got others; "
            "look for weights that are not finite");
}

}  // namespace
}  // namespace weft::models
