#include "weft/nn/layers/mixture_of_experts.h"

#include <c10/core/InferenceMode.h>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"
#include "tests/nn/linear_cases.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/quantized_linear.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;
using testing::error_text;

// S tokens, D width, F ffn, E experts.
constexpr int64_t kModelWidth = 6, kExpertWidth = 22, kNumExperts = 5;

// Whole matrices of one expert, the same on all ranks.
struct WholeExpert {
  explicit WholeExpert(uint64_t seed)
      : gate(seeded_linear(kExpertWidth, kModelWidth, seed)),
        up(seeded_linear(kExpertWidth, kModelWidth, seed + 1)),
        down(seeded_linear(kModelWidth, kExpertWidth, seed + 2)) {}
  at::Tensor forward(const at::Tensor& x) const {
    return down->forward(at::silu(gate->forward(x)) * up->forward(x));
  }
  std::shared_ptr<DenseLinearImpl> gate, up, down;
};

struct WholeMixture {
  WholeMixture() {
    for (uint64_t e = 0; e < kNumExperts; ++e) experts.emplace_back(100 + 10 * e);
  }
  // The formula: every expert for every token, weights of those not chosen are zero.
  at::Tensor forward(const at::Tensor& x_SD, const RoutingOptions& options, bool has_shared) const {
    const at::Tensor scores = at::softmax(router->forward(x_SD), -1);
    auto [weights, chosen] = at::topk(scores, options.top_k, -1);
    if (options.normalize) weights = weights / weights.sum(-1, true);
    const at::Tensor weights_SE = at::zeros_like(scores).scatter(1, chosen, weights);
    at::Tensor y = at::zeros_like(x_SD);
    for (int64_t e = 0; e < kNumExperts; ++e) {
      y = y + weights_SE.narrow(1, e, 1) * experts[e].forward(x_SD);
    }
    if (has_shared) y = y + at::sigmoid(shared_gate->forward(x_SD)) * shared.forward(x_SD);
    return y;
  }
  std::shared_ptr<DenseLinearImpl> router = seeded_linear(kNumExperts, kModelWidth, 1),
                                   shared_gate = seeded_linear(1, kModelWidth, 2);
  std::vector<WholeExpert> experts;
  WholeExpert shared{50};
};

PartialLinear cut_linear(const ShardableLinear& whole, ShardKind kind, const Group& group,
                         int64_t unit = 1) {
  const bool by_rows = kind == ShardKind::kAllToSharded;
  const int64_t size = by_rows ? whole.out_features() : whole.in_features();
  LinearCut cut{kind, shard::make_layout({0, {}, unit}, size, group.size(), "ffn"), group};
  cut.layout.dim = by_rows ? 0 : 1;
  auto part = whole.shard(cut);
  return PartialLinear(std::move(part), std::move(cut));
}

Expert cut_expert(const WholeExpert& whole, const Group& group) {
  return Expert(cut_linear(*whole.gate, ShardKind::kAllToSharded, group),
                cut_linear(*whole.up, ShardKind::kAllToSharded, group),
                cut_linear(*whole.down, ShardKind::kShardedToAll, group));
}

Expert copied_expert(const WholeExpert& whole) {
  const auto copy = [](const DenseLinearImpl& from) {
    return PartialLinear(
        std::make_shared<DenseLinearImpl>(from.weight.detach().clone(), at::Tensor(), true));
  };
  return Expert(copy(*whole.gate), copy(*whole.up), copy(*whole.down));
}

enum class CutBy { kFfn, kExpert };

MixtureOfExpertsParts parts_of(const WholeMixture& whole, CutBy by, bool has_shared,
                               const Group& group) {
  MixtureOfExpertsParts parts;
  parts.router =
      std::make_shared<DenseLinearImpl>(whole.router->weight.detach().clone(), at::Tensor(), true);
  const shard::Range own = by == CutBy::kFfn ? shard::Range{0, kNumExperts}
                                             : shard::part(kNumExperts, group.size(), group.rank());
  for (int64_t e = own.start; e < own.end(); ++e) {
    parts.expert_numbers.push_back(e);
    parts.experts.push_back(by == CutBy::kFfn ? cut_expert(whole.experts[e], group)
                                              : copied_expert(whole.experts[e]));
  }
  if (has_shared) {
    parts.shared = cut_expert(whole.shared, group);
    parts.shared_gate = std::make_shared<DenseLinearImpl>(
        whole.shared_gate->weight.detach().clone(), at::Tensor(), true);
  }
  return parts;
}

// The gradient of a whole's parameter that belongs to a rank's linear.
void expect_gradient(const PartialLinearImpl& part, const DenseLinearImpl& whole,
                     const std::string& what) {
  const at::Tensor grad = part.inner()->named_parameters()["weight"].grad();
  const at::Tensor expected =
      whole.weight.grad().defined() ? whole.weight.grad() : at::zeros_like(whole.weight);
  expect_close(grad, part.cut() == nullptr ? expected : own_part(expected, *part.cut()), what,
               1e-10);
}

void expect_gradients(MixtureOfExperts& layer, const WholeMixture& whole,
                      const MixtureOfExpertsParts& parts, const Group& group) {
  const auto find = [&](const std::string& path) -> PartialLinearImpl& {
    return dynamic_cast<PartialLinearImpl&>(*layer->named_modules()[path]);
  };
  expect_gradient(find("gate"), *whole.router, "router");
  test::expect_equal_on_all_ranks(whole.router->weight.grad(), group, "router's gradient");
  const auto expect_expert = [&](const std::string& path, const WholeExpert& expert) {
    expect_gradient(find(path + ".gate_proj"), *expert.gate, path + ".gate");
    expect_gradient(find(path + ".up_proj"), *expert.up, path + ".up");
    expect_gradient(find(path + ".down_proj"), *expert.down, path + ".down");
  };
  for (const int64_t e : parts.expert_numbers) {
    expect_expert(core::join("experts.", e), whole.experts[e]);
  }
  if (parts.shared.is_empty()) return;
  expect_expert("shared_expert", whole.shared);
  expect_gradient(find("shared_expert_gate"), *whole.shared_gate, "shared gate");
}

struct MixtureCase {
  CutBy by;
  int64_t tokens;
  RoutingOptions options;
  bool has_shared;
};

void expect_sharded_mixture(const MixtureCase& item, const Group& group) {
  const WholeMixture whole;
  const auto parts = parts_of(whole, item.by, item.has_shared, group);
  MixtureOfExperts layer(parts, item.options, group);
  const at::Tensor x_SD = leaf(seeded({item.tokens, kModelWidth}, 7)), x_rank = leaf(x_SD);
  const at::Tensor grad = seeded({item.tokens, kModelWidth}, 8);
  const at::Tensor y_SD = whole.forward(x_SD, item.options, item.has_shared);
  y_SD.backward(grad);
  const at::Tensor y_1SD = layer->forward(x_rank.unsqueeze(0));
  ASSERT_EQ(y_1SD.sizes(), at::IntArrayRef({1, item.tokens, kModelWidth}));
  expect_close(y_1SD[0], y_SD, "forward", 1e-10);
  y_1SD[0].backward(grad);
  expect_close(x_rank.grad(), x_SD.grad(), "gradient of the input", 1e-10);
  expect_gradients(layer, whole, parts, group);
  const c10::InferenceMode inference;
  expect_close(layer->forward(x_rank.detach()), y_SD, "without gradients", 1e-10);
}

TEST(MixtureOfExperts, EqualsTheWholeForwardAndEveryGradient) {
  on_ranks([](const Group& group) {
    for (const CutBy by : {CutBy::kFfn, CutBy::kExpert}) {
      // One token leaves most experts without any.
      for (const int64_t tokens : {1, 9}) {
        for (const int64_t top_k : {int64_t{1}, int64_t{2}, kNumExperts}) {
          SCOPED_TRACE(core::join(by == CutBy::kFfn ? "by ffn, " : "by expert, ", tokens,
                                  " tokens, top ", top_k));
          expect_sharded_mixture({by, tokens, {top_k, true}, false}, group);
          expect_sharded_mixture({by, tokens, {top_k, false}, true}, group);
        }
      }
    }
  });
}

// As Gemma 4 has them: the router reads something else, and each expert's weight has a factor.
TEST(MixtureOfExperts, RoutesBySomethingElseAndMultipliesByFactors) {
  on_ranks([](const Group& group) {
    const at::Tensor factors = seeded({kNumExperts}, 3);
    for (const CutBy by : {CutBy::kFfn, CutBy::kExpert}) {
      const WholeMixture whole;
      MixtureOfExpertsParts parts = parts_of(whole, by, false, group);
      parts.expert_factors = factors;
      MixtureOfExperts layer(parts, RoutingOptions{2, true}, group);
      const at::Tensor x = leaf(seeded({9, kModelWidth}, 7)), routed = leaf(seeded({9, 6}, 8));
      const at::Tensor x_rank = leaf(x), routed_rank = leaf(routed);
      auto [weights, chosen] = at::topk(at::softmax(whole.router->forward(routed), -1), 2, -1);
      weights = weights / weights.sum(-1, true) * factors.index({chosen});
      at::Tensor expected = at::zeros({9, kModelWidth}, at::kDouble);
      for (int64_t e = 0; e < kNumExperts; ++e) {
        const at::Tensor own = (weights * (chosen == e)).sum(-1, true);
        expected = expected + own * whole.experts[static_cast<size_t>(e)].forward(x);
      }
      const at::Tensor grad = seeded({9, kModelWidth}, 9);
      expected.backward(grad);
      const at::Tensor y = layer->forward(x_rank, routed_rank);
      expect_close(y, expected, "forward", 1e-10);
      y.backward(grad);
      expect_close(x_rank.grad(), x.grad(), "gradient of the input", 1e-10);
      expect_close(routed_rank.grad(), routed.grad(), "gradient of what is routed by", 1e-10);
      expect_gradients(layer, whole, parts, group);
    }
  });
  const WholeMixture whole;
  MixtureOfExpertsParts parts = parts_of(whole, CutBy::kFfn, false, Group());
  parts.expert_factors = at::ones({2});
  EXPECT_EQ(error_text([&] {
              MixtureOfExperts(parts, RoutingOptions{2, true}, Group());
            }),
            "ShapeError: nn.MixtureOfExperts: 2 factors of 5 experts, expected as many");
}

TEST(MixtureOfExperts, CostsOneAllReduceForwardAndTwoBackward) {
  on_ranks(
      [](const Group& group) {
        test::CountedGroup counted(group);
        const WholeMixture whole;
        for (const CutBy by : {CutBy::kFfn, CutBy::kExpert}) {
          MixtureOfExperts layer(parts_of(whole, by, true, counted.group()),
                                 RoutingOptions{2, true}, counted.group());
          counted.take_count();
          const at::Tensor y = layer->forward(leaf(seeded({2, 3, kModelWidth}, 7)));
          EXPECT_EQ(counted.take_count(), 1) << "forward";
          y.sum().backward();
          EXPECT_EQ(counted.take_count(), 2) << "backward";
        }
      },
      {2});
}

TEST(MixtureOfExperts, ComputesWithQuantizedExperts) {
  on_ranks(
      [](const Group& group) {
        constexpr int64_t kWidth = 32, kFfn = 96;
        const auto quantized = [](int64_t out, int64_t in, uint64_t seed) {
          return QuantizedLinearImpl(
              quant::quantize_affine(seeded({out, in}, seed, at::kFloat), 4, 32, at::kFloat));
        };
        const auto layer = [&](const Group& ranks) {
          MixtureOfExpertsParts parts;
          parts.router =
              std::make_shared<DenseLinearImpl>(seeded({3, kWidth}, 1, at::kFloat), at::Tensor());
          for (int64_t e = 0; e < 3; ++e) {
            parts.expert_numbers.push_back(e);
            const auto seed = static_cast<uint64_t>(10 * e);
            parts.experts.push_back(Expert(
                cut_linear(quantized(kFfn, kWidth, seed), ShardKind::kAllToSharded, ranks, 32),
                cut_linear(quantized(kFfn, kWidth, seed + 1), ShardKind::kAllToSharded, ranks, 32),
                cut_linear(quantized(kWidth, kFfn, seed + 2), ShardKind::kShardedToAll, ranks,
                           32)));
          }
          return MixtureOfExperts(parts, RoutingOptions{1, true}, ranks);
        };
        // With one token, two experts run with none while gradients are recorded.
        for (const int64_t tokens : {1, 5}) {
          const at::Tensor x = leaf(seeded({1, tokens, kWidth}, 5, at::kFloat)), x_rank = leaf(x);
          MixtureOfExperts whole = layer(Group()), sharded = layer(group);
          const at::Tensor y = whole->forward(x), y_rank = sharded->forward(x_rank);
          expect_close(y_rank, y, "forward", 1e-5);
          y.sum().backward();
          y_rank.sum().backward();
          expect_close(x_rank.grad(), x.grad(), "gradient of the input", 1e-5);
        }
      },
      {1, 2, 3});
}

TEST(MixtureOfExperts, HoldsItsLinearsWhereTheyCanBeExchanged) {
  const WholeMixture whole;
  MixtureOfExperts layer(parts_of(whole, CutBy::kFfn, true, Group()), RoutingOptions{2, true},
                         Group());
  std::vector<std::string> paths;
  for (const HeldLinear& held : find_linears(*layer)) paths.push_back(held.path);
  EXPECT_EQ(paths.size(), 2 + 3 * (kNumExperts + 1));
  EXPECT_EQ(paths[0], "gate");
  EXPECT_EQ(paths[1], "experts.0.gate_proj");
  EXPECT_EQ(apply_lora(*layer, {"down_proj"}), kNumExperts + 1);
}

// As loading makes experts that are dealt out whole: a cut of which one rank has all.
Expert dealt_expert(const WholeExpert& whole, int64_t owner, const Group& group) {
  const auto place = [&](const DenseLinearImpl& from, ShardKind kind) {
    const bool by_rows = kind == ShardKind::kAllToSharded;
    std::vector<int64_t> lengths(static_cast<size_t>(group.size()), 0);
    lengths[static_cast<size_t>(owner)] = kExpertWidth;
    return PartialLinear(
        std::make_shared<DenseLinearImpl>(from.weight.detach().clone(), at::Tensor(), true),
        LinearCut{kind, shard::contiguous_layout(by_rows ? 0 : 1, lengths), group});
  };
  return Expert(place(*whole.gate, ShardKind::kAllToSharded),
                place(*whole.up, ShardKind::kAllToSharded),
                place(*whole.down, ShardKind::kShardedToAll));
}

TEST(MixtureOfExperts, TrainsAdaptersOfExpertsThatAreDealtOut) {
  on_ranks([](const Group& group) {
    const WholeMixture whole;
    MixtureOfExpertsParts parts = parts_of(whole, CutBy::kExpert, false, group);
    parts.experts.clear();
    for (const int64_t e : parts.expert_numbers) {
      parts.experts.push_back(
          dealt_expert(whole.experts[static_cast<size_t>(e)], group.rank(), group));
    }
    MixtureOfExperts dealt(parts, RoutingOptions{2, true}, group);
    MixtureOfExperts reference(parts_of(whole, CutBy::kFfn, false, Group()),
                               RoutingOptions{2, true}, Group());
    for (MixtureOfExperts* layer : {&dealt, &reference}) {
      apply_lora(**layer, {"gate_proj", "up_proj", "down_proj"}, {4, 8, 3});
      (*layer)->to(at::kDouble);
      const at::NoGradGuard no_grad;
      for (const auto& item : (*layer)->named_parameters()) {
        if (item.key().ends_with("lora_b")) item.value().copy_(seeded(item.value().sizes(), 9));
      }
    }
    const at::Tensor x = seeded({9, kModelWidth}, 7), grad = seeded({9, kModelWidth}, 8);
    const at::Tensor y = dealt->forward(leaf(x)), expected = reference->forward(leaf(x));
    expect_close(y, expected, "forward", 1e-10);
    y.backward(grad);
    expected.backward(grad);
    const auto references = reference->named_parameters();
    for (const auto& item : dealt->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      const at::Tensor own = item.value().grad(), other = references[item.key()].grad();
      ASSERT_EQ(own.defined(), other.defined()) << item.key();
      if (own.defined()) expect_close(own, other, item.key(), 1e-10);
    }
  });
}

TEST(MixtureOfExperts, RefusesPartsThatDoNotFit) {
  const WholeMixture whole;
  const auto error = [&](void (*change)(MixtureOfExpertsParts&), int64_t top_k) {
    auto parts = parts_of(whole, CutBy::kFfn, true, Group());
    change(parts);
    return error_text([&] { MixtureOfExperts(parts, RoutingOptions{top_k, true}, Group()); });
  };
  const auto same = [](MixtureOfExpertsParts&) {};
  EXPECT_EQ(error(same, 6),
            "ConfigError: nn.MixtureOfExperts: 6 experts per token of 5, expected 1 to 5");
  EXPECT_EQ(error(same, 0),
            "ConfigError: nn.MixtureOfExperts: 0 experts per token of 5, expected 1 to 5");
  EXPECT_EQ(error([](auto& parts) { parts.experts.pop_back(); }, 1),
            "ShapeError: nn.MixtureOfExperts: 4 experts and 5 numbers, expected the same and at "
            "least one");
  EXPECT_EQ(error([](auto& parts) { parts.expert_numbers[1] = 0; }, 1),
            "ShapeError: nn.MixtureOfExperts: expert numbers [0, 0, 2, 3, 4], expected ascending "
            "ones below 5");
  EXPECT_EQ(error([](auto& parts) { parts.shared = nullptr; }, 1),
            "ShapeError: nn.MixtureOfExperts: a gate without a shared expert");
  EXPECT_EQ(error_text([] {
              Expert(PartialLinear(seeded_linear(4, kModelWidth, 1)),
                     PartialLinear(seeded_linear(5, kModelWidth, 1)),
                     PartialLinear(seeded_linear(kModelWidth, 4, 1)));
            }),
            "ShapeError: nn.Expert: gate, up and down have 4, 5 and 4 ffn features here, expected "
            "the same");
}

}  // namespace
}  // namespace weft::nn
