// What torch users do with modules: to(dtype), clone(), torch::save and torch::load.

#include <torch/nn/cloneable.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/core/error_text.h"
#include "tests/nn/linear_cases.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/nn/parallel/column_parallel_linear.h"
#include "weft/nn/parallel/parallel_embedding.h"
#include "weft/nn/parallel/quantized_parallel_linear.h"
#include "weft/nn/parallel/row_parallel_linear.h"
#include "weft/nn/parallel/shard_linear.h"
#include "weft/nn/parallel/vocab_parallel.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::on_ranks;
using test::seeded;
using testing::error_text;

// Two layers of the kinds given, cut over the ranks.
struct ChainImpl : torch::nn::Cloneable<ChainImpl> {
  ChainImpl(MakeLinear make_up, MakeLinear make_down)
      : make_up_(std::move(make_up)), make_down_(std::move(make_down)) {
    reset();
  }
  void reset() override {
    up = register_module("up", Linear(make_up_()));
    norm = register_module("norm", RMSNorm(at::full({kWidth}, 0.5), 1e-5));
    down = register_module("down", Linear(make_down_()));
  }
  void shard(const Group& group, int64_t unit = 32) {
    up = shard_linear(up, "all-to-sharded", group, {.unit = unit});
    down = shard_linear(down, "sharded-to-all", group, {.unit = unit});
  }
  at::Tensor forward(const at::Tensor& x) { return down(at::silu(up(norm(x)))); }

  static constexpr int64_t kWidth = 64, kHidden = 160;
  Linear up{nullptr}, down{nullptr};
  RMSNorm norm{nullptr};

 private:
  MakeLinear make_up_, make_down_;
};
TORCH_MODULE(Chain);

constexpr int64_t kChainWidth = ChainImpl::kWidth, kChainHidden = ChainImpl::kHidden;

std::vector<std::pair<std::string, Chain>> chains() {
  const auto on = [](const MakeLinear& base) { return lora_case(base, at::kFloat); };
  const auto plain = [](int64_t out, int64_t in) { return dense_case(out, in, at::kFloat); };
  return {
      {"dense", Chain(plain(kChainHidden, kChainWidth), plain(kChainWidth, kChainHidden))},
      {"affine", Chain(quantized_case(kChainHidden, kChainWidth, 32),
                       quantized_case(kChainWidth, kChainHidden, 32))},
      {"mxfp4", Chain(microscaled_case(kChainHidden, kChainWidth, quant::Mode::kMxfp4),
                      microscaled_case(kChainWidth, kChainHidden, quant::Mode::kMxfp4))},
      {"lora", Chain(on(quantized_case(kChainHidden, kChainWidth, 32)),
                     on(plain(kChainWidth, kChainHidden)))},
  };
}

TEST(TorchModule, AnotherDtypeKeepsAQuantizedWeightsValues) {
  on_ranks([](const Group& group) {
    for (auto& [name, chain] : chains()) {
      SCOPED_TRACE(name);
      chain->shard(group);
      const at::Tensor x = seeded({3, kChainWidth}, 3, at::kFloat);
      const at::Tensor before = chain->forward(x).detach();
      std::map<std::string, at::Tensor> packed;
      for (const auto& item : chain->named_buffers()) {
        if (!item.key().ends_with("bias")) packed[item.key()] = item.value().clone();
      }
      for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
        chain->to(dtype);
        const at::Tensor y = chain->forward(x.to(dtype));
        EXPECT_EQ(y.scalar_type(), dtype);
        expect_close(y.to(at::kFloat), before, c10::toString(dtype), 0x1p-4);
        for (const auto& item : chain->named_parameters()) {
          EXPECT_EQ(item.value().scalar_type(), dtype) << item.key();
        }
      }
      for (const auto& [key, bits] : packed) {
        EXPECT_TRUE(chain->named_buffers()[key].equal(bits)) << key;
      }
    }
  });
}

TEST(TorchModule, AnotherDtypeKeepsPanelsAndAMergedAdapter) {
  Chain chain = chains().back().second;
  const at::Tensor x = seeded({3, kChainWidth}, 3, at::kFloat);
  merge_lora(*chain);
  const at::Tensor merged = chain->forward(x).detach();
  chain->to(at::kBFloat16);
  expect_close(chain->forward(x.to(at::kBFloat16)).to(at::kFloat), merged, "merged", 0x1p-4);

  const at::NoGradGuard no_grad;
  Chain affine = chains()[1].second;
  ASSERT_EQ(put_in_panels(*affine, 16), 2);
  const at::Tensor in_panels = affine->forward(x);
  affine->to(at::kBFloat16);
  affine->to(at::kCPU, at::kFloat);
  EXPECT_TRUE(affine->forward(x).equal(in_panels));
  const auto copy = std::dynamic_pointer_cast<ChainImpl>(affine->clone());
  EXPECT_TRUE(copy->forward(x).equal(in_panels)) << "a clone of panels";
}

void expect_own_tensors(const torch::nn::Module& one, const torch::nn::Module& two) {
  const auto compare = [](const auto& tensors, const auto& others) {
    ASSERT_EQ(tensors.size(), others.size());
    for (const auto& item : tensors) {
      const at::Tensor& other = others[item.key()];
      EXPECT_TRUE(item.value().equal(other)) << item.key();
      EXPECT_NE(item.value().const_data_ptr(), other.const_data_ptr()) << item.key();
      EXPECT_EQ(item.value().requires_grad(), other.requires_grad()) << item.key();
    }
  };
  compare(one.named_parameters(), two.named_parameters());
  compare(one.named_buffers(), two.named_buffers());
}

TEST(TorchModule, AClonedModelIsCutAlikeAndStandsAlone) {
  on_ranks([](const Group& group) {
    for (auto& [name, chain] : chains()) {
      SCOPED_TRACE(name);
      chain->shard(group);
      chain->eval();
      const auto copy = std::dynamic_pointer_cast<ChainImpl>(chain->clone());
      expect_own_tensors(*chain, *copy);
      EXPECT_FALSE(copy->up->is_training());
      const at::Tensor x = seeded({3, kChainWidth}, 3, at::kFloat);
      const at::Tensor before = chain->forward(x).detach();
      EXPECT_TRUE(copy->forward(x).equal(before));
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : copy->parameters()) parameter.zero_();
      EXPECT_TRUE(chain->forward(x).equal(before)) << "the original has changed";
      copy->forward(x);
      copy->up->unshard();
      EXPECT_EQ(copy->up->inner()->out_features(), kChainHidden) << "the clone knows its cut";
    }
  });
}

// A layer and its clone give the same of `x`, from tensors of their own.
template <typename Layer>
void expect_cloned(Layer& layer, const at::Tensor& x) {
  SCOPED_TRACE(layer->name());
  const auto copy = std::dynamic_pointer_cast<typename Layer::ContainedType>(layer->clone());
  ASSERT_NE(copy, nullptr) << "of the same type";
  expect_own_tensors(*layer, *copy);
  EXPECT_TRUE(copy->forward(x).equal(layer->forward(x)));
}

TEST(TorchModule, EveryCutLayerCanBeCloned) {
  on_ranks([](const Group& group) {
    at::manual_seed(1);
    const at::Tensor x = seeded({2, kChainWidth}, 3, at::kFloat);
    const at::Tensor ids = at::arange(6).view({2, 3});
    const at::Tensor own = x.narrow(1, 0, kChainWidth / 4);
    ColumnParallelLinear column(kChainWidth, kChainHidden, group);
    RowParallelLinear row(kChainWidth, kChainHidden, group);
    QuantizedAllToShardedLinear up(kChainWidth, kChainHidden, true, 32, 4, group);
    QuantizedShardedToAllLinear down(32 * group.size(), kChainHidden, true, 32, 4, group);
    ParallelEmbedding embedding(12, kChainWidth, group, ParallelEmbeddingOptions{.padding_idx = 1});
    VocabParallelEmbedding tokens(12, kChainWidth, group);
    VocabParallelHead head(tokens->inner(), 12, group);
    ShardedRMSNorm norm(at::full({kChainWidth / 4}, 0.5), kChainWidth / 4 * group.size(), 1e-5,
                        group);
    HeadRMSNorm head_norm(at::full({kChainWidth}, 0.5), 1e-5, group);
    SequenceParallelRMSNorm sequence_norm(at::full({kChainWidth}, 0.5), 1e-5, group);
    expect_cloned(column, x);
    expect_cloned(row, x);
    expect_cloned(up, x);
    expect_cloned(down, x.narrow(1, 0, 32));
    expect_cloned(embedding, ids);
    expect_cloned(tokens, ids);
    expect_cloned(head, x);
    expect_cloned(norm, own);
    expect_cloned(head_norm, x.view({1, 2, 1, kChainWidth}));
    expect_cloned(sequence_norm, x);
  });
}

std::string saved(const Chain& chain) {
  std::ostringstream file;
  torch::save(chain, file);
  return file.str();
}

// What loading these bytes into the model throws.
std::string load_error(const std::string& bytes, Chain chain) {
  return error_text([&] {
    std::istringstream file(bytes);
    torch::load(chain, file);
  });
}

const std::string kRemedy =
    "; give each rank the file that it wrote, on as many ranks, or save the whole after unshard() "
    "and cut after loading";

TEST(TorchModule, SavedCutModulesLoadOnTheirOwnRankAlone) {
  on_ranks(
      [](const Group& group) {
        for (auto& [name, chain] : chains()) {
          SCOPED_TRACE(name);
          Chain other(std::dynamic_pointer_cast<ChainImpl>(chain->clone()));
          const std::string whole = saved(chain);
          EXPECT_EQ(load_error(whole, other), "no error");
          chain->shard(group);
          const std::string part = saved(chain);
          const std::string kind = name == "dense"  ? "DenseLinear"
                                   : name == "lora" ? "LoraLinear"
                                                    : "QuantizedLinear";
          EXPECT_EQ(load_error(part, other),
                    "FormatError: nn." + kind + ".load: the file has rank " +
                        std::to_string(group.rank()) + " of 2, rows " +
                        (group.rank() == 0 ? "0 to 95" : "96 to 159") +
                        " of 160, expected a layer that is not cut" + kRemedy);
          other->shard(group);
          const at::NoGradGuard no_grad;
          for (at::Tensor& parameter : other->parameters()) parameter.zero_();
          EXPECT_EQ(load_error(part, other), "no error");
          expect_own_tensors(*chain, *other);
          EXPECT_NE(load_error(whole, other)
                        .find("the file has a layer that is not cut, expected "
                              "rank "),
                    std::string::npos);
        }
      },
      {2});
}

TEST(TorchModule, AnotherRanksFileIsRefusedInALine) {
  on_ranks(
      [](const Group& group) {
        Chain chain = chains().front().second;
        chain->shard(group, 1);
        const std::string own = saved(chain);
        at::Tensor bytes = at::empty({static_cast<int64_t>(own.size())}, at::kByte);
        std::copy(own.begin(), own.end(), bytes.mutable_data_ptr<uint8_t>());
        const at::Tensor all = group.all_gather(bytes.unsqueeze(0), 0);
        const at::Tensor theirs = all[1 - group.rank()].contiguous();
        const auto* data = reinterpret_cast<const char*>(theirs.const_data_ptr<uint8_t>());
        const std::string rows[] = {"rank 0 of 2, rows 0 to 79 of 160",
                                    "rank 1 of 2, rows 80 to 159 of 160"};
        EXPECT_EQ(load_error({data, static_cast<size_t>(theirs.numel())}, chain),
                  "FormatError: nn.AllToShardedLinear.load: the file has " +
                      rows[1 - group.rank()] + ", expected " + rows[group.rank()] + kRemedy);
        // As many rows, but others.
        Chain fused = chains().front().second;
        fused->up->shard(ShardKind::kAllToSharded, group, {{80, 80}, 0, "up"});
        fused->down->shard(ShardKind::kShardedToAll, group, {{80, 80}, 0, "down"});
        const std::string ranges =
            group.rank() == 0 ? "0 to 39, 80 to 119" : "40 to 79, 120 to 159";
        EXPECT_NE(load_error(own, fused).find("rows " + ranges + " of 160"), std::string::npos);
        Chain wide(dense_case(kChainHidden, kChainWidth, at::kDouble),
                   dense_case(kChainWidth, kChainHidden, at::kDouble));
        wide->shard(group, 1);
        EXPECT_EQ(load_error(own, wide),
                  "FormatError: nn.DenseLinear.load: the file has weight [80, 64] of "
                  "Float, expected [80, 64] of Double; load it into a layer like the one that was "
                  "saved");
      },
      {2});
}

TEST(TorchModule, ALayerCanItselfBeTheModuleThatIsQuantizedOrAdapted) {
  on_ranks([](const Group& group) {
    for (const ShardKind kind : {ShardKind::kAllToSharded, ShardKind::kShardedToAll}) {
      const auto make = dense_case(18, 160, at::kFloat);
      const quant::Scheme scheme{.group_size = 32};
      const ShardOptions options{.unit = kind == ShardKind::kAllToSharded ? 1 : 32};
      Linear place(make());
      place->shard(kind, group, options);
      EXPECT_EQ(quantize(*place, scheme), 1);
      const auto layer = shard_linear(*make(), kind, group, options);
      EXPECT_EQ(quantize(*layer, scheme), 1);
      EXPECT_TRUE(layer->master_weight().equal(
          quant::dequantize(quant::quantize(make()->dense_weight(), scheme), at::kFloat)));
      EXPECT_TRUE(held_weight(*layer->inner()).equal(place->weight()));
      EXPECT_EQ(error_text([&] { quantize(*layer, scheme); }),
                "ConfigError: nn.quantize: the layer is quantized already; leave it out by "
                "predicate");
    }
    torch::nn::Linear plain(4, 4);
    EXPECT_EQ(error_text([&] { quantize(*plain, {}); }),
              "ConfigError: nn.quantize: the layer is a torch::nn::Linear, whose place cannot take "
              "another layer; make the member a weft::nn::Linear");
  });
}

}  // namespace
}  // namespace weft::nn
