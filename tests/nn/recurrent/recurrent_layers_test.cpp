// Layers with a state against torch's own operations, whole, in pieces and cut over ranks.
#include <cmath>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/nn/recurrent/delta_rule.h"
#include "weft/nn/recurrent/gated_delta_net.h"
#include "weft/nn/recurrent/short_convolution.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;
using testing::error_text;

constexpr int64_t kChannels = 10, kTaps = 4;

shard::Layout channels(int64_t n) {
  return shard::make_layout({0, {}, 1}, kChannels, n, "channels");
}

at::Tensor own_slice(const at::Tensor& whole, const shard::Layout& layout, int64_t rank,
                     int64_t dim) {
  const shard::Range range = layout.of(rank).front();
  return whole.narrow(dim, range.start, range.length);
}

// By torch's convolution, with documents one by one.
at::Tensor convolved(const at::Tensor& x_BTc, const at::Tensor& taps) {
  const at::Tensor padded = at::pad(x_BTc.transpose(1, 2), {kTaps - 1, 0});
  return at::conv1d(padded, taps, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1},
                    x_BTc.size(2))
      .transpose(1, 2);
}

TEST(ShortConvolution, GivesTorchsConvolutionAndItsGradientsOnAnyRanks) {
  on_ranks([](const Group& group) {
    const at::Tensor x = leaf(seeded({2, 7, kChannels}, 1)),
                     taps = leaf(seeded({kChannels, 1, kTaps}, 2));
    const at::Tensor y = convolved(x, taps), weights = seeded({2, 7, kChannels}, 3);
    (y * weights).sum().backward();
    const shard::Layout layout = channels(group.size());
    const auto own = [&](const at::Tensor& whole, int64_t dim) {
      return own_slice(whole.detach(), layout, group.rank(), dim);
    };
    ShortConvolution layer(own(taps, 0).clone(), layout, true);
    const at::Tensor own_x = leaf(own(x, 2));
    const at::Tensor own_y = layer->forward(own_x);
    expect_close(own_y, own(y, 2), "output", 1e-12);
    (own_y * own(weights, 2)).sum().backward();
    expect_close(own_x.grad(), own(x.grad(), 2), "input's gradient", 1e-12);
    const auto infos = describe_parameters(*layer);
    ASSERT_EQ(infos.size(), 1U);
    EXPECT_EQ(infos[0].name, "weight");
    EXPECT_EQ(infos[0].sizes, (std::vector<int64_t>{kChannels, 1, kTaps}));
    expect_close(infos[0].tensor.grad(), own(taps.grad(), 0), "taps' gradient", 1e-12);
  });
}

TEST(ShortConvolution, SeesNothingOfOtherDocuments) {
  const at::Tensor x = seeded({1, 9, kChannels}, 4), taps = seeded({kChannels, 1, kTaps}, 5);
  ShortConvolution layer(taps, channels(1));
  const at::Tensor documents = at::tensor({0, 0, 1, 1, 1, 1, 1, 2, 3}, at::kLong).unsqueeze(0);
  const at::Tensor y = layer->forward(x, documents);
  for (const auto& [start, length] : {std::pair<int64_t, int64_t>{0, 2}, {2, 5}, {7, 1}, {8, 1}}) {
    expect_close(y.narrow(1, start, length), convolved(x.narrow(1, start, length), taps),
                 core::join("document at ", start), 1e-12);
  }
  expect_close(layer->forward(x.narrow(1, 0, 2), documents.narrow(1, 0, 2)),
               convolved(x.narrow(1, 0, 2), taps), "fewer tokens than taps", 1e-12);
}

TEST(ShortConvolution, GoesOnFromItsState) {
  const at::Tensor x = seeded({3, 12, kChannels}, 6, at::kFloat);
  const at::Tensor taps = seeded({kChannels, 1, kTaps}, 7, at::kFloat);
  ShortConvolution layer(taps, channels(1));
  const at::Tensor whole = layer->forward(x);
  const at::Tensor state = at::zeros({3, layer->num_past(), kChannels});
  int64_t start = 0;
  for (const int64_t tokens : {2, 1, 1, 5, 3}) {
    const at::Tensor part = layer->forward(x.narrow(1, start, tokens), {}, state);
    EXPECT_TRUE(at::equal(part, whole.narrow(1, start, tokens))) << start;
    start += tokens;
  }
}

TEST(ShortConvolution, RefusesTapsOfAnotherShape) {
  EXPECT_EQ(error_text([] {
              ShortConvolution(at::zeros({4, 3}), channels(1));
            }),
            "ShapeError: nn.ShortConvolution: weight [4, 3], expected [channels, 1, taps]");
}

// 5 key heads, which no number of ranks but one shares evenly, each with 2 value heads.
constexpr DeltaHeads kDeltaHeads = {
    .num_key_heads = 5, .num_value_heads = 10, .key_dim = 3, .value_dim = 4};
constexpr int64_t kDeltaBatch = 2, kDeltaTokens = 11;

DeltaTokens delta_tokens() {
  const auto numbers = [](int64_t heads, int64_t dim, uint64_t seed) {
    return seeded({kDeltaBatch, kDeltaTokens, heads, dim}, seed);
  };
  return {leaf(numbers(5, 3, 1)), leaf(numbers(5, 3, 2)), leaf(numbers(10, 4, 3)),
          leaf(-numbers(10, 1, 4).squeeze(-1).abs()),
          leaf(numbers(10, 1, 5).squeeze(-1).sigmoid())};
}

std::vector<at::Tensor> all_of(const DeltaTokens& in) {
  return {in.queries_BTkK, in.keys_BTkK, in.values_BTvV, in.decays_BTv, in.rates_BTv};
}

// Of one head of one sequence after the other.
at::Tensor delta_formula(const DeltaTokens& in, const at::Tensor& documents_BT) {
  std::vector<at::Tensor> outputs;
  for (int64_t b = 0; b < in.values_BTvV.size(0); ++b) {
    for (int64_t head = 0; head < in.values_BTvV.size(2); ++head) {
      const int64_t own = head / 2;
      at::Tensor state = at::zeros({3, 4}, at::kDouble);
      for (int64_t t = 0; t < in.values_BTvV.size(1); ++t) {
        const bool is_first =
            documents_BT.defined() && t > 0 &&
            documents_BT[b][t].item<int64_t>() != documents_BT[b][t - 1].item<int64_t>();
        if (is_first) state = at::zeros_like(state);
        const auto unit = [](const at::Tensor& x) { return x / (x.square().sum() + 1e-6).sqrt(); };
        const at::Tensor key = unit(in.keys_BTkK[b][t][own]);
        state = state * in.decays_BTv[b][t][head].exp();
        const at::Tensor missed = in.values_BTvV[b][t][head] - at::mv(state.t(), key);
        state = state + at::outer(key, missed * in.rates_BTv[b][t][head]);
        outputs.push_back(at::mv(state.t(), unit(in.queries_BTkK[b][t][own])) / std::sqrt(3.0));
      }
    }
  }
  return at::stack(outputs).view({kDeltaBatch, 10, -1, 4}).transpose(1, 2);
}

// Two texts and three, which begin inside of chunks and at their edges.
at::Tensor delta_documents() {
  return at::tensor({0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 5}, at::kLong)
      .view({kDeltaBatch, kDeltaTokens});
}

TEST(DeltaRule, BothWaysGiveTheFormulaAndItsGradients) {
  const at::Tensor weights = seeded({kDeltaBatch, kDeltaTokens, 10, 4}, 6);
  for (const at::Tensor& documents : {at::Tensor(), delta_documents()}) {
    const auto wanted = delta_tokens();
    const at::Tensor expected = delta_formula(wanted, documents);
    (expected * weights).sum().backward();
    // 0: one token after the other.
    for (const int64_t chunk : {0, 1, 4, 5, 64}) {
      const auto own = delta_tokens();
      const std::string what =
          core::join("chunks of ", chunk, documents.defined() ? ", texts" : "");
      const at::Tensor got =
          chunk == 0 ? delta_rule_by_steps(own, documents) : delta_rule(own, documents, {}, chunk);
      expect_close(got, expected, what);
      (got * weights).sum().backward();
      for (size_t i = 0; i < 5; ++i) {
        expect_close(all_of(own)[i].grad(), all_of(wanted)[i].grad(),
                     core::join(what, ", gradient ", i), 1e-11);
      }
    }
  }
}

TEST(DeltaRule, GoesOnFromItsState) {
  const at::NoGradGuard no_grad;
  const auto whole = delta_tokens();
  const at::Tensor expected = delta_rule(whole);
  for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{1, 6, 1, 3}, {5, 5, 1}}) {
    at::Tensor state = at::zeros({kDeltaBatch, 10, 3, 4}, at::kDouble);
    int64_t start = 0;
    for (const int64_t tokens : pieces) {
      const auto cut = [&](const at::Tensor& x) { return x.narrow(1, start, tokens); };
      const DeltaTokens part = {cut(whole.queries_BTkK), cut(whole.keys_BTkK),
                                cut(whole.values_BTvV), cut(whole.decays_BTv),
                                cut(whole.rates_BTv)};
      expect_close(delta_rule(part, {}, state, 4), cut(expected), core::join("from ", start));
      start += tokens;
    }
  }
}

// Values that fill several vectors, and one in part.
TEST(DeltaRule, HasTheSameBitsInPiecesWithoutGradients) {
  const at::NoGradGuard no_grad;
  constexpr int64_t kKeys = 6, kValues = 75;
  const auto numbers = [](int64_t heads, int64_t dim, uint64_t seed) {
    return seeded({kDeltaBatch, kDeltaTokens, heads, dim}, seed);
  };
  const DeltaTokens wide = {numbers(2, kKeys, 1), numbers(2, kKeys, 2), numbers(6, kValues, 3),
                            -numbers(6, 1, 4).squeeze(-1).abs(),
                            numbers(6, 1, 5).squeeze(-1).sigmoid()};
  const auto state = [](at::ScalarType type) {
    return at::zeros({kDeltaBatch, 6, kKeys, kValues}, type);
  };
  at::Tensor expected_state = state(at::kDouble), whole_state = state(at::kFloat);
  const at::Tensor expected = delta_rule_by_steps(wide, {}, expected_state);
  const auto part = [&](int64_t start, int64_t count) {
    const auto cut = [&](const at::Tensor& x) { return x.narrow(1, start, count).to(at::kFloat); };
    return DeltaTokens{cut(wide.queries_BTkK), cut(wide.keys_BTkK), cut(wide.values_BTvV),
                       cut(wide.decays_BTv), cut(wide.rates_BTv)};
  };
  const at::Tensor whole = delta_rule(part(0, kDeltaTokens), {}, whole_state);
  expect_close(whole, expected, "output", 1e-5);
  expect_close(whole_state, expected_state, "state", 1e-5);
  at::Tensor piece_state = state(at::kFloat);
  std::vector<at::Tensor> pieces;
  for (const auto& [start, count] : {std::pair{0, 1}, {1, 7}, {8, 2}, {10, 1}}) {
    pieces.push_back(delta_rule(part(start, count), {}, piece_state));
  }
  EXPECT_TRUE(at::cat(pieces, 1).equal(whole));
  EXPECT_TRUE(piece_state.equal(whole_state));
}

TEST(DeltaRule, KeepsAndForgetsInFloat32) {
  // Decays so large that their exponentials overflow the other way round.
  DeltaTokens in = delta_tokens();
  for (at::Tensor* x : {&in.queries_BTkK, &in.keys_BTkK, &in.values_BTvV, &in.rates_BTv}) {
    *x = leaf(x->to(at::kFloat));
  }
  in.decays_BTv = leaf(in.decays_BTv.to(at::kFloat) * 60);
  const at::Tensor got = delta_rule(in);
  expect_close(got, delta_rule_by_steps(in), "output", 1e-5);
  {
    const at::NoGradGuard no_grad;
    expect_close(delta_rule(in), got, "by the kernel", 1e-5);
  }
  got.sum().backward();
  for (const at::Tensor& x : all_of(in)) EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

// The whole's parameters, inputs and the weights of its outputs in a loss.
struct DeltaWhole {
  at::Tensor taps = leaf(seeded({kDeltaHeads.num_channels(), 1, kTaps}, 11));
  at::Tensor decay_log = leaf(seeded({10}, 12)), step_bias = leaf(seeded({10}, 13));
  at::Tensor norm = leaf(seeded({4}, 14));
  DeltaProjections in = {leaf(seeded({kDeltaBatch, kDeltaTokens, kDeltaHeads.num_channels()}, 15)),
                         leaf(seeded({kDeltaBatch, kDeltaTokens, 40}, 16)),
                         leaf(seeded({kDeltaBatch, kDeltaTokens, 10}, 17)),
                         leaf(seeded({kDeltaBatch, kDeltaTokens, 10}, 18))};
  at::Tensor weights = seeded({kDeltaBatch, kDeltaTokens, 40}, 19);

  at::Tensor formula() const {
    const at::Tensor mixed = at::silu(convolved(in.channels_BTc, taps));
    const auto heads = [&](int64_t start, int64_t count, int64_t dim) {
      return mixed.narrow(-1, start, count * dim).unflatten(-1, {count, dim});
    };
    const at::Tensor out = delta_formula(
        {heads(0, 5, 3), heads(15, 5, 3), heads(30, 10, 4),
         -decay_log.exp() * at::softplus(in.decays_BTv + step_bias), in.rates_BTv.sigmoid()},
        {});
    const at::Tensor normed = norm * out / (out.square().mean(-1, true) + 1e-5).sqrt();
    return normed.flatten(2) * at::silu(in.gates_BTf);
  }
};

// By runs of key heads, of each segment by itself.
shard::Layout delta_layout(const std::vector<int64_t>& segments, int64_t n) {
  shard::Layout layout;
  for (const int64_t segment : segments) layout.size += segment;
  for (int64_t rank = 0; rank < n; ++rank) {
    auto& own = layout.ranges.emplace_back();
    int64_t start = 0;
    for (const int64_t segment : segments) {
      const shard::Range heads = shard::part(5, n, rank);
      own.push_back({start + heads.start * segment / 5, heads.length * segment / 5});
      start += segment;
    }
  }
  return layout;
}

// Norms are computed in float32.
constexpr double kNormed = 1e-5;

TEST(GatedDeltaNet, GivesTheFormulaAndItsGradientsOnAnyRanks) {
  on_ranks([](const Group& group) {
    const DeltaWhole whole;
    const at::Tensor expected = whole.formula();
    (expected * whole.weights).sum().backward();
    const shard::Layout channels = delta_layout({15, 15, 40}, group.size()),
                        features = delta_layout({40}, group.size()),
                        counts = delta_layout({10}, group.size());
    const auto cut = [&](const at::Tensor& x, const shard::Layout& layout, int64_t dim) {
      std::vector<at::Tensor> parts;
      for (const shard::Range& range : layout.of(group.rank())) {
        parts.push_back(x.detach().narrow(dim, range.start, range.length));
      }
      return at::cat(parts, dim).clone();
    };
    GatedDeltaParts parts = {ShortConvolution(cut(whole.taps, channels, 0), channels, true),
                             HeadNumbers(cut(whole.decay_log, counts, 0), counts, true),
                             HeadNumbers(cut(whole.step_bias, counts, 0), counts, true),
                             HeadRMSNorm(whole.norm.detach().clone(), 1e-5, group, true)};
    const auto& in = whole.in;
    const DeltaProjections own = {
        leaf(cut(in.channels_BTc, channels, 2)), leaf(cut(in.gates_BTf, features, 2)),
        leaf(cut(in.rates_BTv, counts, 2)), leaf(cut(in.decays_BTv, counts, 2))};
    const DeltaHeads heads = kDeltaHeads.with_value_heads(own.rates_BTv.size(-1));
    const at::Tensor got = gated_delta_net(heads, parts, own);
    expect_close(got, cut(expected, features, 2), "output", kNormed);
    (got * cut(whole.weights, features, 2)).sum().backward();
    const auto check = [&](const at::Tensor& x, const at::Tensor& of, const shard::Layout& layout,
                           int64_t dim, const char* what) {
      expect_close(x.grad(), cut(of.grad(), layout, dim), what, kNormed);
    };
    check(own.channels_BTc, in.channels_BTc, channels, 2, "channels");
    check(own.gates_BTf, in.gates_BTf, features, 2, "gates");
    check(own.rates_BTv, in.rates_BTv, counts, 2, "rates");
    check(own.decays_BTv, in.decays_BTv, counts, 2, "decays");
    check(parts.convolution->weight, whole.taps, channels, 0, "taps");
    check(parts.decay_log->weight, whole.decay_log, counts, 0, "decay log");
    check(parts.step_bias->weight, whole.step_bias, counts, 0, "step bias");
    expect_close(parts.norm->weight.grad(), whole.norm.grad(), "norm", kNormed);
  });
}

TEST(DeltaRule, NamesSizesThatDoNotFit) {
  DeltaTokens in = delta_tokens();
  in.rates_BTv = in.rates_BTv.narrow(2, 0, 4);
  EXPECT_EQ(error_text([&] { delta_rule(in); }),
            "ShapeError: nn.delta_rule: queries [2, 11, 5, 3], keys [2, 11, 5, 3], values [2, 11, "
            "10, 4], decays [2, 11, 10], rates [2, 11, 4], expected [B, T, k, K] twice, [B, T, v, "
            "V] and [B, T, v] twice, v a multiple of k");
  GatedDeltaParts parts;
  const at::Tensor one = at::zeros({1, 1, 1});
  EXPECT_EQ(error_text([&] {
              gated_delta_net(kDeltaHeads, parts, {one, one, one, one});
            }),
            "ShapeError: nn.gated_delta_net: 1 channels, 1 gates, 1 rates, 1 decays, expected 70, "
            "40, 10, 10");
}

}  // namespace
}  // namespace weft::nn
