// Layers whose sums have one order: the bits of one rank on any number of ranks, forward and
// backward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/run_ranks.h"
#include "weft/nn/attention/rotary_attention.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/layers/swiglu.h"
#include "weft/nn/ordered/ordered_cross_entropy.h"
#include "weft/nn/ordered/ordered_embedding.h"
#include "weft/nn/ordered/ordered_heads.h"
#include "weft/nn/ordered/ordered_linears.h"
#include "weft/shard/sum_order.h"

namespace weft::nn::ordered {
namespace {

using shard::Layout;
using shard::SumOrder;

constexpr int64_t kOrderedTokens = 19, kOrderedWidth = 45, kOrderedFfn = 70, kOrderedVocab = 83;
constexpr int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 10;
constexpr int kMostRanks = 6;

// Numbers of very different sizes: their sums have other bits in every order.
at::Tensor wide(at::IntArrayRef sizes, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor exponents = at::randint(-6, 3, sizes, generator, at::kFloat);
  return at::randn(sizes, generator) * at::exp2(exponents);
}

Layout even_layout(int64_t size, int64_t n) {
  return shard::make_layout({0, {}, 1}, size, n, "dim");
}

std::vector<Layout> even_layouts(int64_t size) {
  std::vector<Layout> cuts;
  for (int64_t n = 1; n <= kMostRanks; ++n) cuts.push_back(even_layout(size, n));
  return cuts;
}

std::vector<Layout> query_layouts() {
  std::vector<Layout> cuts;
  for (int64_t n = 1; n <= kMostRanks; ++n) {
    cuts.push_back(shard::head_layouts(kHeads, kKvHeads, kHeadDim, n).query);
  }
  return cuts;
}

// Sequences of a batch and how they are added: 0 to 4 by a tree that is no chain.
constexpr int64_t kOrderedSequences = 5;

SequenceOrder order_of(int64_t sequences) {
  shard::SumPlan plan;
  for (int64_t i = 0; i < sequences; ++i) plan.pieces.push_back({i, 1});
  if (sequences == kOrderedSequences) plan.steps = {{0, 1}, {3, 4}, {2, 3}, {0, 2}};
  plan.nodes = {0};
  plan.slots = 1;
  return std::make_shared<const shard::SumPlan>(plan);
}

// What one rank of a group computes, or the whole where the group is one.
struct Side {
  dist::Group group;
  // Of all sequences those that it computes.
  shard::Range sequences = {0, kOrderedSequences};

  SequenceOrder order() const { return order_of(sequences.length); }
  at::Tensor batch(at::IntArrayRef sizes, uint64_t seed) const {
    return wide(sizes, seed).narrow(0, sequences.start, sequences.length).clone();
  }

  // This rank's part of a whole along dim, which needs a gradient.
  at::Tensor part(const at::Tensor& whole, const Layout& layout, int64_t dim) const {
    std::vector<at::Tensor> parts;
    for (const shard::Range& range : layout.of(group.rank())) {
      parts.push_back(whole.narrow(dim, range.start, range.length));
    }
    return at::cat(parts, dim).clone().set_requires_grad(true);
  }
  std::shared_ptr<dist::OrderedSum> sum(const std::vector<Layout>& cuts) const {
    return std::make_shared<dist::OrderedSum>(
        group, SumOrder(cuts).plan(cuts[static_cast<size_t>(group.size() - 1)], group.rank()));
  }
  // Of pieces that belong to as many linears.
  std::shared_ptr<const InputSum> input(size_t linears, const std::vector<Layout>& cuts) const {
    auto input = std::make_shared<InputSum>();
    input->sum = sum(cuts);
    for (const shard::Range& piece : input->sum->plan().pieces) {
      auto& parts = input->pieces.emplace_back();
      for (size_t i = 0; i < linears; ++i) parts.push_back({i, piece});
    }
    return input;
  }
};

// A named output or gradient, and along which layout and dim it is cut; no layouts: it is whole.
struct Found {
  std::string name;
  at::Tensor value;
  std::vector<Layout> cuts = {};
  int64_t dim = 0;
};

using Computed = std::vector<Found>;

Computed feed_forward(const Side& side) {
  const std::vector<Layout> cuts = even_layouts(kOrderedFfn);
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  at::Tensor x =
      side.batch({kOrderedSequences, kOrderedTokens, kOrderedWidth}, 1).set_requires_grad(true);
  const at::Tensor gate = side.part(wide({kOrderedFfn, kOrderedWidth}, 2), own, 0);
  const at::Tensor up = side.part(wide({kOrderedFfn, kOrderedWidth}, 3), own, 0);
  const at::Tensor up_bias = side.part(wide({kOrderedFfn}, 4), own, 0);
  const at::Tensor down = side.part(wide({kOrderedWidth, kOrderedFfn}, 5), own, 1);
  at::Tensor bias = wide({kOrderedWidth}, 6).set_requires_grad(true);
  const auto made = linears(x, {gate, up}, {{}, up_bias}, side.input(2, cuts), side.order());
  const at::Tensor y = with_bias(
      reduced(swiglu(made[0], made[1]), down, side.sum(cuts), side.order()), bias, side.order());
  y.backward(side.batch({kOrderedSequences, kOrderedTokens, kOrderedWidth}, 7));
  return {{"y", y.detach()},
          {"x", x.grad()},
          {"gate", gate.grad(), cuts, 0},
          {"up", up.grad(), cuts, 0},
          {"up bias", up_bias.grad(), cuts, 0},
          {"down", down.grad(), cuts, 1},
          {"bias", bias.grad()}};
}

HeadCut heads_of(const Side& side) {
  HeadCut cut;
  cut.group = side.group;
  cut.num_heads = kHeads;
  cut.num_kv_heads = kKvHeads;
  const Layout own = query_layouts()[static_cast<size_t>(side.group.size() - 1)];
  for (const int64_t length : own.lengths()) cut.heads_of_rank.push_back(length / kHeadDim);
  cut.own = shard::shard_heads(kHeads, kKvHeads, side.group.size(), side.group.rank());
  return cut;
}

// As models::input_of_heads.
std::shared_ptr<const InputSum> input_of(const Side& side, const HeadCut& cut) {
  auto input = std::make_shared<InputSum>();
  input->sum = side.sum(query_layouts());
  for (const shard::Range& piece : input->sum->plan().pieces) {
    auto& parts = input->pieces.emplace_back();
    for (int64_t head = piece.start / kHeadDim; head < piece.end() / kHeadDim; ++head) {
      const int64_t whole = cut.own.heads.start + head;
      if (whole % cut.heads_per_kv() == 0) {
        const int64_t kv = whole / cut.heads_per_kv() - cut.own.kv_heads.start;
        parts.push_back({1, {kv * kHeadDim, kHeadDim}});
        parts.push_back({2, {kv * kHeadDim, kHeadDim}});
      }
      parts.push_back({0, {head * kHeadDim, kHeadDim}});
    }
  }
  return input;
}

Computed attention(const Side& side) {
  const HeadCut cut = heads_of(side);
  const std::vector<Layout> cuts = query_layouts();
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  std::vector<Layout> kv_cuts;
  for (int64_t n = 1; n <= kMostRanks; ++n) {
    kv_cuts.push_back(shard::head_layouts(kHeads, kKvHeads, kHeadDim, n).kv);
  }
  const Layout& own_kv = kv_cuts[static_cast<size_t>(side.group.size() - 1)];
  at::Tensor x =
      side.batch({kOrderedSequences, kOrderedTokens, kOrderedWidth}, 11).set_requires_grad(true);
  const at::Tensor q = side.part(wide({kHeads * kHeadDim, kOrderedWidth}, 12), own, 0);
  const at::Tensor k = side.part(wide({kKvHeads * kHeadDim, kOrderedWidth}, 13), own_kv, 0);
  const at::Tensor v = side.part(wide({kKvHeads * kHeadDim, kOrderedWidth}, 14), own_kv, 0);
  const at::Tensor o = side.part(wide({kOrderedWidth, kHeads * kHeadDim}, 15), own, 1);
  at::Tensor q_norm = wide({kHeadDim}, 16).set_requires_grad(true);
  at::Tensor k_norm = wide({kHeadDim}, 17).set_requires_grad(true);
  const auto made = linears(x, {q, k, v}, {{}, {}, {}}, input_of(side, cut), side.order());
  const auto heads = [](const at::Tensor& t) { return t.unflatten(2, {-1, kHeadDim}); };
  AttentionSpec spec;
  spec.kv_of_head.resize(static_cast<size_t>(cut.own.heads.length));
  std::iota(spec.kv_of_head.begin(), spec.kv_of_head.end(), 0);
  const at::Tensor mixed = rotary_attention(
      normed_heads(heads(made[0]), q_norm, 1e-5, cut, false, side.order()),
      copied_to_heads(normed_heads(heads(made[1]), k_norm, 1e-5, cut, true, side.order()), cut),
      copied_to_heads(heads(made[2]), cut),
      Rope(kHeadDim, 1e4, kOrderedTokens).angles(0, kOrderedTokens), spec);
  const at::Tensor y = reduced(mixed, o, side.sum(cuts), side.order());
  y.backward(side.batch({kOrderedSequences, kOrderedTokens, kOrderedWidth}, 18));
  return {{"y", y.detach()},           {"x", x.grad()},
          {"q", q.grad(), cuts, 0},    {"k", k.grad(), kv_cuts, 0},
          {"v", v.grad(), kv_cuts, 0}, {"o", o.grad(), cuts, 1},
          {"q norm", q_norm.grad()},   {"k norm", k_norm.grad()}};
}

at::Tensor ids_of(const Side& side, int64_t factor) {
  const at::Tensor all = (at::arange(kOrderedSequences * kOrderedTokens, at::kLong) * factor)
                             .remainder(kOrderedVocab)
                             .view({kOrderedSequences, kOrderedTokens});
  return all.narrow(0, side.sequences.start, side.sequences.length).clone();
}

// From ids to losses, through a table that is the head's as well, or is not.
Computed loss(const Side& side, bool is_tied) {
  const std::vector<Layout> cuts = even_layouts(kOrderedVocab);
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  const shard::Range rows = own.of(side.group.rank()).front();
  const at::Tensor head = side.part(wide({kOrderedVocab, kOrderedWidth}, 22), own, 0);
  const at::Tensor table =
      is_tied ? head : side.part(wide({kOrderedVocab, kOrderedWidth}, 23), own, 0);
  RMSNorm norm(wide({kOrderedWidth}, 24), 1e-5, true);
  at::Tensor targets = ids_of(side, 31);
  targets.select(1, 3).fill_(-100);
  const auto input = side.input(1, cuts);
  const auto held = is_tied ? std::make_shared<HeldGradient>() : nullptr;
  const at::Tensor x = embedded(ids_of(side, 7), table, {rows, side.group}, side.order(), held);
  const at::Tensor y = norm->forward_in_order(x, side.order());
  const at::Tensor logits = linears(y, {head}, {{}}, input, side.order(), held).front();
  const at::Tensor losses =
      cross_entropy_sum(logits, targets, rows, kOrderedVocab, side.group, input->sum);
  losses.backward(at::ones_like(losses));
  Computed found = {
      {"losses", losses.detach()}, {"norm", norm->weight.grad()}, {"head", head.grad(), cuts, 0}};
  if (!is_tied) found.push_back({"table", table.grad(), cuts, 0});
  return found;
}

Computed tied_loss(const Side& side) { return loss(side, true); }
Computed untied_loss(const Side& side) { return loss(side, false); }

// More rows than ranks exchange at once.
Computed many_rows(const Side& side) {
  const std::vector<Layout> cuts = even_layouts(64);
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  const at::Tensor x = side.part(wide({700, 64}, 51), own, 1);
  const at::Tensor w = side.part(wide({1024, 64}, 52), own, 1);
  EXPECT_LT(shard::rows_exchanged_at_once(1024), 700);
  return {{"y", reduced(x, w, side.sum(cuts), order_of(1)).detach()}};
}

// Of several ways to see one and the same, with what a group of ranks may not change.
void expect_bits_of_one_rank(Computed (*compute)(const Side&)) {
  for (const int n : {2, 3, 4, kMostRanks}) {
    test::run_ranks(n, [&](const dist::World& world) {
      const Computed expected = compute(Side{});
      at::set_num_threads(2);
      const Computed got = compute(Side{world.group()});
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        at::Tensor own = expected[i].value;
        if (!got[i].cuts.empty()) {
          own = Side{world.group()}.part(own, got[i].cuts[static_cast<size_t>(n - 1)], got[i].dim);
        }
        EXPECT_TRUE(at::equal(got[i].value, own.detach())) << got[i].name << " on " << n;
      }
    });
  }
}

TEST(OrderedLayers, FeedForwardHasTheBitsOfOneRank) { expect_bits_of_one_rank(feed_forward); }

TEST(OrderedLayers, AttentionHasTheBitsOfOneRankAlsoWhereKvHeadsAreShared) {
  expect_bits_of_one_rank(attention);
}

TEST(OrderedLayers, LossHasTheBitsOfOneRank) { expect_bits_of_one_rank(untied_loss); }

TEST(OrderedLayers, LossOfATiedTableHasTheBitsOfOneRank) { expect_bits_of_one_rank(tied_loss); }

TEST(OrderedLayers, RowsExchangedInPartsHaveTheBitsOfOneRank) {
  expect_bits_of_one_rank(many_rows);
}

// What each sequence gives by itself, added by the order, is what all give together: outputs and
// gradients of inputs are those of its rows.
TEST(OrderedLayers, SequencesTogetherHaveTheBitsOfEachAlone) {
  for (Computed (*compute)(const Side&) : {feed_forward, attention, tied_loss, untied_loss}) {
    const Computed together = compute(Side{});
    std::vector<Computed> alone;
    for (int64_t i = 0; i < kOrderedSequences; ++i) alone.push_back(compute(Side{{}, {i, 1}}));
    for (size_t i = 0; i < together.size(); ++i) {
      std::vector<at::Tensor> parts;
      for (const Computed& each : alone) parts.push_back(each[i].value);
      const bool is_of_rows = together[i].value.size(0) == kOrderedSequences;
      const at::Tensor expected =
          is_of_rows ? at::cat(parts)
                     : summed_parts(at::stack(parts), *order_of(kOrderedSequences));
      EXPECT_TRUE(at::equal(together[i].value, expected)) << together[i].name;
    }
  }
}

void expect_near(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  const double most = expected.abs().max().item<double>();
  EXPECT_LT((got.to(at::kDouble) - expected).abs().max().item<double>(), 1e-5 * most) << what;
}

const at::Tensor& found(const Computed& computed, const std::string& name) {
  for (const Found& each : computed) {
    if (each.name == name) return each.value;
  }
  throw std::runtime_error(name);
}

TEST(OrderedLayers, FeedForwardIsThatOfTorch) {
  const Computed got = feed_forward(Side{});
  const auto leaf = [](at::IntArrayRef sizes, uint64_t seed) {
    return wide(sizes, seed).to(at::kDouble).set_requires_grad(true);
  };
  at::Tensor x = leaf({kOrderedSequences, kOrderedTokens, kOrderedWidth}, 1),
             gate = leaf({kOrderedFfn, kOrderedWidth}, 2);
  at::Tensor up = leaf({kOrderedFfn, kOrderedWidth}, 3), up_bias = leaf({kOrderedFfn}, 4);
  at::Tensor down = leaf({kOrderedWidth, kOrderedFfn}, 5), bias = leaf({kOrderedWidth}, 6);
  const at::Tensor y =
      at::linear(at::silu(at::linear(x, gate)) * at::linear(x, up, up_bias), down, bias);
  y.backward(wide(y.sizes(), 7).to(at::kDouble));
  expect_near(found(got, "y"), y.detach(), "y");
  for (const auto& [name, leaf_tensor] :
       std::vector<std::pair<std::string, at::Tensor>>{{"x", x},
                                                       {"gate", gate},
                                                       {"up", up},
                                                       {"up bias", up_bias},
                                                       {"down", down},
                                                       {"bias", bias}}) {
    expect_near(found(got, name), leaf_tensor.grad(), name);
  }
}

TEST(OrderedLayers, LossIsThatOfTorch) {
  const Side side;
  at::Tensor targets = ids_of(side, 31);
  targets.select(1, 3).fill_(-100);
  for (const bool is_tied : {true, false}) {
    const Computed got = loss(side, is_tied);
    const auto leaf = [](at::IntArrayRef sizes, uint64_t seed) {
      return wide(sizes, seed).to(at::kDouble).set_requires_grad(true);
    };
    at::Tensor head = leaf({kOrderedVocab, kOrderedWidth}, 22), norm = leaf({kOrderedWidth}, 24);
    at::Tensor table = is_tied ? head : leaf({kOrderedVocab, kOrderedWidth}, 23);
    const at::Tensor x =
        at::rms_norm(at::embedding(table, ids_of(side, 7)), {kOrderedWidth}, norm, 1e-5);
    const at::Tensor losses = at::cross_entropy_loss(at::linear(x, head).transpose(1, 2), targets,
                                                     {}, at::Reduction::None, -100)
                                  .sum(1);
    losses.sum().backward();
    expect_near(found(got, "losses"), losses.detach(), "losses");
    expect_near(found(got, "norm"), norm.grad(), "norm");
    expect_near(found(got, "head"), head.grad(), "head");
    if (!is_tied) expect_near(found(got, "table"), table.grad(), "table");
  }
}

// The test can fail: pieces of one cut alone have other sums than those of all cuts.
TEST(OrderedLayers, OtherPiecesGiveOtherBits) {
  const at::Tensor x = wide({kOrderedTokens, kOrderedFfn}, 31),
                   w = wide({kOrderedWidth, kOrderedFfn}, 32);
  const std::vector<Layout> all = even_layouts(kOrderedFfn), one = {even_layout(kOrderedFfn, 1)};
  const Side side;
  EXPECT_FALSE(at::equal(reduced(x, w, side.sum(all), order_of(1)),
                         reduced(x, w, side.sum(one), order_of(1))));
}

// Rows, columns and threads change no bit of a sum, whatever blocks they make.
TEST(OrderedLayers, ARowIsTheSameAloneAndAmongOthers) {
  const at::Tensor x = wide({500, 700}, 41), w = wide({300, 700}, 42);
  const Side side;
  const auto sum = side.sum(even_layouts(700));
  at::set_num_threads(1);
  const at::Tensor y = reduced(x, w, sum, order_of(1));
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(reduced(x, w, sum, order_of(1)), y)) << threads;
    EXPECT_TRUE(at::equal(reduced(x.narrow(0, 77, 1), w, sum, order_of(1)), y.narrow(0, 77, 1)));
    EXPECT_TRUE(at::equal(reduced(x, w.narrow(0, 33, 17), sum, order_of(1)), y.narrow(1, 33, 17)));
  }
  at::set_num_threads(1);
}

}  // namespace
}  // namespace weft::nn::ordered
