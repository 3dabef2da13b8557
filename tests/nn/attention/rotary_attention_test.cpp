#include "weft/nn/attention/rotary_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/nn/attention/attention.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::seeded;

struct RotaryCase {
  int64_t tokens;
  int64_t head_dim;
  std::vector<int64_t> kv_of_head = {0, 0, 1, 1};
  int64_t window = 0;
  int64_t rope_dim = 0;
  double scale = 0;
  double cap = 0;
  bool has_sinks = false;
};

struct Outcome {
  at::Tensor y, q, k, v;
  /// Undefined: there are none.
  at::Tensor sinks = {};
};

using Attention = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const RopeAngles&, const AttentionSpec&, const at::Tensor&);

constexpr int64_t kRotaryBatch = 2, kKvHeads = 2;

Outcome run_attention(Attention attention, const RotaryCase& c, at::ScalarType dtype,
                      const at::Tensor& documents = {}) {
  const auto heads = static_cast<int64_t>(c.kv_of_head.size());
  const auto input = [&](int64_t count, uint64_t seed) {
    return test::leaf(
        seeded({kRotaryBatch, c.tokens, count, c.head_dim}, seed, at::kFloat).to(dtype));
  };
  const at::Tensor q = input(heads, 1), k = input(kKvHeads, 2), v = input(kKvHeads, 3);
  const Rope rope(c.rope_dim == 0 ? c.head_dim : c.rope_dim, 10'000, 512);
  AttentionSpec spec{c.kv_of_head, c.window, c.scale, c.cap};
  if (c.has_sinks) spec.sinks = test::leaf(seeded({heads}, 5, at::kFloat).to(dtype));
  const at::Tensor y = attention(q, k, v, rope.angles(0, c.tokens), spec, documents);
  const at::Tensor weights = seeded(y.sizes(), 4, at::kFloat).to(dtype);
  (y * weights).sum().backward();
  return {y.detach(), q.grad(), k.grad(), v.grad(), c.has_sinks ? spec.sinks.grad() : at::Tensor()};
}

void expect_same_attention(const RotaryCase& c, at::ScalarType dtype, double tolerance,
                           const at::Tensor& documents = {}) {
  const Outcome got = run_attention(rotary_attention, c, dtype, documents);
  const Outcome expected = run_attention(composed_rotary_attention, c, at::kFloat, documents);
  const std::string what = core::join(c.tokens, " tokens of ", c.head_dim, ", window ", c.window);
  EXPECT_EQ(got.y.scalar_type(), dtype);
  expect_close(got.y, expected.y, what + ": y", tolerance);
  expect_close(got.q, expected.q, what + ": q", tolerance);
  expect_close(got.k, expected.k, what + ": k", tolerance);
  expect_close(got.v, expected.v, what + ": v", tolerance);
  if (c.has_sinks) expect_close(got.sinks, expected.sinks, what + ": sinks", tolerance);
}

TEST(RotaryAttention, EqualsTheComposedOneForwardAndBackward) {
  for (const RotaryCase& c : std::vector<RotaryCase>{{1, 6},
                                                     {63, 16},
                                                     {64, 64},
                                                     {65, 64},
                                                     {130, 80},
                                                     {97, 8, {0, 1, 1, 1}},
                                                     {70, 32, {1, 1}},
                                                     {200, 16, {0, 0, 1, 1}, 7},
                                                     {200, 16, {0, 0, 1, 1}, 64},
                                                     {150, 16, {0, 1}, 100},
                                                     {40, 12, {0, 1}, 0, 6},
                                                     {70, 16, {0, 0, 1, 1}, 0, 0, 0.4},
                                                     {90, 16, {0, 1}, 20, 8, 0.05},
                                                     {130, 16, {0, 1}, 0, 0, 0, 0.9},
                                                     {150, 32, {0, 0, 1, 1}, 40, 0, 0.3, 1.5, true},
                                                     {130, 16, {0, 0, 0, 1}, 0, 0, 0, 0, true}}) {
    expect_same_attention(c, at::kFloat, 1e-5);
    expect_same_attention(c, at::kBFloat16, 3e-2);
  }
}

TEST(RotaryAttention, TurnsNothingWithoutRope) {
  const auto outcome = [](bool is_one_pass) {
    const auto input = [](int64_t heads, uint64_t seed) {
      return test::leaf(seeded({kRotaryBatch, 70, heads, 16}, seed, at::kFloat));
    };
    const at::Tensor q = input(4, 1), k = input(kKvHeads, 2), v = input(kKvHeads, 3);
    const AttentionSpec spec{{0, 0, 1, 1}};
    const at::Tensor y = is_one_pass ? rotary_attention(q, k, v, RopeAngles::none(70), spec)
                                     : grouped_query_attention(q.transpose(1, 2), k.transpose(1, 2),
                                                               v.transpose(1, 2), spec);
    (y * seeded(y.sizes(), 4, at::kFloat)).sum().backward();
    return Outcome{y.detach(), q.grad(), k.grad(), v.grad()};
  };
  const Outcome got = outcome(true), expected = outcome(false);
  expect_close(got.y, expected.y, "y", 1e-5);
  expect_close(got.q, expected.q, "q", 1e-5);
  expect_close(got.k, expected.k, "k", 1e-5);
  expect_close(got.v, expected.v, "v", 1e-5);
}

TEST(RotaryAttention, StaysWithinDocuments) {
  const at::Tensor first = at::cat({at::zeros({70}), at::ones({1}), at::ones({79}) * 5});
  const at::Tensor second = at::cat({at::ones({10}) * 9, at::ones({140}) * 2});
  const at::Tensor documents = at::stack({first, second}).to(at::kLong);
  expect_same_attention({150, 16}, at::kFloat, 1e-5, documents);
  expect_same_attention({150, 16, {0, 0, 1, 1}, 20}, at::kFloat, 1e-5, documents);
}

TEST(RotaryAttention, TakesDocumentsThatComeBack) {
  const at::Tensor documents = (at::arange(40) / 10).floor().remainder(2).to(at::kLong);
  expect_same_attention({40, 16}, at::kFloat, 1e-5,
                        documents.expand({kRotaryBatch, 40}).contiguous());
}

TEST(RotaryAttention, TakesPositionsOfEveryRowAndStridedHeads) {
  const at::Tensor all = seeded({2, 30, 8, 16}, 1, at::kFloat);
  const at::Tensor q = all.narrow(2, 0, 4), k = all.narrow(2, 4, 2), v = all.narrow(2, 6, 2);
  const Rope rope(16, 10'000, 64);
  const RopeAngles angles = rope.angles((at::arange(60).view({2, 30}) * 3).remainder(50));
  const AttentionSpec spec{{0, 0, 1, 1}};
  expect_close(rotary_attention(q, k, v, angles, spec),
               composed_rotary_attention(q, k, v, angles, spec), "rows of their own", 1e-5);
}

TEST(RotaryAttention, DependsOnNoNumberOfThreads) {
  const RotaryCase c{150, 32};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Outcome one = run_attention(rotary_attention, c, at::kFloat);
  at::set_num_threads(3);
  const Outcome three = run_attention(rotary_attention, c, at::kFloat);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(one.y, three.y));
  EXPECT_TRUE(at::equal(one.q, three.q));
  EXPECT_TRUE(at::equal(one.k, three.k));
  EXPECT_TRUE(at::equal(one.v, three.v));
}

TEST(RotaryAttention, TakesOtherTypesAndPassesNanOn) {
  const RotaryCase c{20, 16};
  expect_close(run_attention(rotary_attention, c, at::kDouble).q,
               run_attention(composed_rotary_attention, c, at::kDouble).q, "double");
  const at::Tensor q = at::full({1, 5, 2, 16}, std::nan(""), at::kFloat);
  const at::Tensor k = at::ones({1, 5, 2, 16});
  EXPECT_TRUE(rotary_attention(q, k, k, Rope(16, 1e4, 8).angles(0, 5), {{0, 1}})
                  .isnan()
                  .all()
                  .item<bool>());
}

TEST(RotaryAttention, RefusesShapesThatDoNotFit) {
  const at::Tensor q = at::zeros({1, 5, 2, 16}), k = at::zeros({1, 4, 2, 16});
  EXPECT_EQ(testing::error_text([&] {
              rotary_attention(q, k, k, Rope(16, 1e4, 8).angles(0, 5), {{0, 1}});
            }),
            "ShapeError: nn.rotary_attention: q [1, 5, 2, 16], k [1, 4, 2, 16] and v [1, 4, 2, 16] "
            "with 2 heads mapped, expected [B, T, heads, H] with B, T and H the same");
}

}  // namespace
}  // namespace weft::nn
