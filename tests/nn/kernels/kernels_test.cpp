// Every kernel that this machine runs, against sums in float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/nn/kernels/select.h"

namespace weft::nn::kernels {
namespace {

using test::expect_close;
using test::seeded;

TEST(Kernels, SoftenRowsOfAnyLength) {
  for (const Kernel* kernel : runnable_kernels()) {
    for (const int64_t size : {1, 3, 16, 37, 1000}) {
      const at::Tensor x = seeded({size}, 1, at::kFloat) * 20;
      LogitsRow row{x.const_data_ptr(), size, 0};
      row.max = kernel->float32.row_max(row);
      EXPECT_EQ(row.max, x.max().item<float>()) << kernel->name;
      const float sum = kernel->float32.row_exp_sum(row);
      const double expected = (x.to(at::kDouble) - row.max).exp().sum().item<double>();
      EXPECT_NEAR(sum, expected, 1e-6 * expected) << kernel->name;
      at::Tensor out = at::empty({size});
      kernel->float32.row_softmax(row, std::log(sum), 2, 0.5, out.mutable_data_ptr());
      expect_close(out, x.to(at::kDouble).softmax(0) * 2 - 0.5, kernel->name, 1e-6);
    }
  }
}

TEST(Kernels, TurnPairsThereAndBack) {
  for (const Kernel* kernel : runnable_kernels()) {
    for (const int64_t dim : {2, 6, 32, 64, 82}) {
      const at::Tensor x = seeded({dim}, 1, at::kFloat), angles = seeded({dim / 2}, 2, at::kFloat);
      const at::Tensor cos = angles.cos(), sin = angles.sin();
      const auto halves = x.view({2, dim / 2});
      const at::Tensor turned = x.clone();
      const auto turn = [&](float sign) {
        kernel->rotate(turned.mutable_data_ptr<float>(), cos.const_data_ptr<float>(),
                       sin.const_data_ptr<float>(), dim, sign);
      };
      turn(1);
      const at::Tensor expected =
          at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin});
      expect_close(turned, expected, kernel->name, 1e-6);
      turn(-1);
      expect_close(turned, x, kernel->name, 1e-6);
    }
  }
}

TEST(Kernels, ReadAndWriteTheStateOfADeltaNet) {
  constexpr int64_t kTokens = 3, kKeys = 5;
  for (const Kernel* kernel : runnable_kernels()) {
    for (const int64_t columns : {1, 4, 16, 70, 128}) {
      const at::Tensor q = seeded({kTokens, kKeys}, 1, at::kFloat);
      const at::Tensor k = seeded({kTokens, kKeys}, 2, at::kFloat);
      const at::Tensor v = seeded({kTokens, columns}, 3, at::kFloat);
      const at::Tensor kept = seeded({kTokens}, 4, at::kFloat).sigmoid();
      const at::Tensor rates = seeded({kTokens}, 5, at::kFloat).sigmoid();
      at::Tensor state = seeded({kKeys, columns}, 6, at::kFloat);
      at::Tensor S = state.to(at::kDouble), out = at::empty({kTokens, columns});
      kernel->delta({kTokens, kKeys, columns, q.const_data_ptr<float>(), k.const_data_ptr<float>(),
                     v.const_data_ptr<float>(), columns, kept.const_data_ptr<float>(),
                     rates.const_data_ptr<float>(), 1, state.mutable_data_ptr<float>(),
                     out.mutable_data_ptr<float>(), columns});
      for (int64_t t = 0; t < kTokens; ++t) {
        S = S * kept[t];
        const at::Tensor key = k[t].to(at::kDouble);
        S = S + at::outer(key, (v[t] - at::mv(S.t(), key)) * rates[t]);
        expect_close(out[t], at::mv(S.t(), q[t].to(at::kDouble)), kernel->name, 1e-5);
      }
      expect_close(state, S, kernel->name, 1e-5);
    }
  }
}

TEST(Kernels, ExponentiateWithinTheLastPlaces) {
  for (const Kernel* kernel : runnable_kernels()) {
    const at::Tensor x = at::linspace(-87, 0, 9999);
    at::Tensor out = at::empty({9999});
    kernel->float32.row_softmax({x.const_data_ptr(), 9999, 0}, 0, 1, 0, out.mutable_data_ptr());
    const at::Tensor expected = x.to(at::kDouble).exp();
    EXPECT_LE(((out - expected) / expected).abs().max().item<double>(), 2.5e-7) << kernel->name;
    const float edges[] = {-std::numeric_limits<float>::infinity(), -1000, 0, std::nanf("")};
    float results[4];
    kernel->float32.row_softmax({edges, 4, 0}, 0, 1, 0, results);
    EXPECT_EQ(results[0], 0) << kernel->name;
    EXPECT_EQ(results[1], 0) << kernel->name;
    EXPECT_EQ(results[2], 1) << kernel->name;
    EXPECT_TRUE(std::isnan(results[3])) << kernel->name;
  }
}

TEST(Kernels, RoundToBfloat16AsLibtorchDoes) {
  at::Tensor x = seeded({1000}, 1, at::kFloat);
  auto* values = x.mutable_data_ptr<float>();
  values[0] = std::nanf("");
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = 1.00390625F;
  values[3] = 1.01171875F;
  const at::Tensor expected = x.to(at::kBFloat16);
  for (const Kernel* kernel : runnable_kernels()) {
    at::Tensor narrow = at::empty({1000}, at::kBFloat16), wide = at::empty({1000});
    kernel->bfloat16.narrow(values, narrow.mutable_data_ptr(), 1000);
    EXPECT_TRUE(at::allclose(narrow.to(at::kFloat), expected.to(at::kFloat), 0, 0, true))
        << kernel->name;
    kernel->bfloat16.widen(narrow.const_data_ptr(), wide.mutable_data_ptr<float>(), 1000);
    EXPECT_TRUE(at::allclose(wide, expected.to(at::kFloat), 0, 0, true)) << kernel->name;
  }
}

// x [tokens, H] in tiles of [H, kTile].
at::Tensor tiles(const at::Tensor& x) {
  const int64_t tokens = x.size(0), rows = (tokens + kTile - 1) / kTile * kTile;
  return at::constant_pad_nd(x, {0, 0, 0, rows - tokens})
      .view({rows / kTile, kTile, x.size(1)})
      .transpose(1, 2)
      .contiguous();
}

// As the kernels read it.
at::Tensor plain(const at::Tensor& x) { return x.detach().to(at::kFloat).contiguous(); }

// One head of attention: what libtorch makes of it in float64, and the memory of a kernel's.
class AttentionCase {
 public:
  AttentionCase(int64_t tokens, int64_t head_dim, int64_t window, at::ScalarType dtype)
      : tokens_(tokens), head_dim_(head_dim), window_(window) {
    const auto leaf = [&](int seed) { return test::leaf(input(seed, dtype)); };
    q_ = leaf(1), k_ = leaf(2), v_ = leaf(3), d_o_ = input(4, dtype);
    const at::Tensor ones = at::ones({tokens, tokens}, at::kBool);
    const at::Tensor hidden = ones.triu(1).logical_or(ones.tril(-window));
    const at::Tensor scores = at::matmul(q_, k_.t()).masked_fill(hidden, -INFINITY);
    o_ = at::matmul(scores.softmax(-1), v_);
    lse_ = scores.logsumexp(-1);
    o_.backward(d_o_);
  }

  // Runs both passes and compares.
  template <class Attend, class AttendBackward>
  void check(Attend&& attend, AttendBackward&& attend_backward, const std::string& name,
             double tolerance) {
    const at::Tensor q = plain(q_), k = plain(k_), v = plain(v_), d_o = plain(d_o_);
    const at::Tensor kt = tiles(k), vt = tiles(v), delta = plain((o_ * d_o_).sum(-1));
    const at::Tensor o = at::empty_like(q), lse = at::empty({tokens_}), d_q = at::empty_like(q);
    const at::Tensor d_k = at::zeros_like(q), d_v = at::zeros_like(q);
    const at::Tensor scratch = at::full({half_attend_scratch(tokens_, head_dim_)}, NAN);
    AttentionHead head;
    head.tokens = tokens_;
    head.head_dim = head_dim_;
    head.window = window_;
    head.q = q.const_data_ptr<float>();
    head.k = k.const_data_ptr<float>();
    head.v = v.const_data_ptr<float>();
    head.kt = kt.const_data_ptr<float>();
    head.vt = vt.const_data_ptr<float>();
    head.o = o.mutable_data_ptr<float>();
    head.lse = lse.mutable_data_ptr<float>();
    head.d_o = d_o.const_data_ptr<float>();
    head.delta = delta.const_data_ptr<float>();
    head.d_q = d_q.mutable_data_ptr<float>();
    head.d_k = d_k.mutable_data_ptr<float>();
    head.d_v = d_v.mutable_data_ptr<float>();
    attend(head, scratch.mutable_data_ptr<float>());
    attend_backward(head, scratch.mutable_data_ptr<float>());
    const std::string of = core::join(" of ", tokens_, " x ", head_dim_, ", window ", window_);
    expect_close(o, o_, name + " o" + of, tolerance);
    expect_close(lse, lse_, name + " lse" + of, tolerance);
    expect_close(d_q, q_.grad(), name + " q" + of, tolerance);
    expect_close(d_k, k_.grad(), name + " k" + of, tolerance);
    expect_close(d_v, v_.grad(), name + " v" + of, tolerance);
  }

 private:
  at::Tensor input(int seed, at::ScalarType dtype) const {
    return (seeded({tokens_, head_dim_}, seed) * 0.5).to(dtype).to(at::kDouble);
  }

  int64_t tokens_, head_dim_, window_;
  at::Tensor q_, k_, v_, d_o_, o_, lse_;
};

TEST(Kernels, AttendForwardAndBackward) {
  for (const int64_t tokens : {1, 64, 150}) {
    for (const int64_t window : {tokens, int64_t{70}}) {
      for (const Kernel* kernel : runnable_kernels()) {
        AttentionCase(tokens, 32, window, at::kDouble)
            .check(kernel->attend, kernel->attend_backward, kernel->name, 1e-5);
      }
    }
  }
}

// From where the series of tanh ends to where nothing but its limit is left.
TEST(Kernels, GateAsTheFormulasDo) {
  const at::Tensor gate = at::linspace(-12, 12, 1003, at::kFloat), up = at::sin(gate * 7) * 3;
  const at::Tensor g = gate.to(at::kDouble), u = up.to(at::kDouble);
  const at::Tensor low = g.clamp_max(2.5);
  const at::Tensor clamped = low * at::sigmoid(1.702 * low) * (u.clamp(-2.5, 2.5) + 1);
  const at::Tensor y = at::empty_like(gate);
  for (const Kernel* kernel : runnable_kernels()) {
    kernel->float32.geglu(gate.const_data_ptr(), up.const_data_ptr(), y.mutable_data_ptr(),
                          gate.numel());
    expect_close(y, at::gelu(g, "tanh") * u, core::join(kernel->name, ": gelu"), 1e-6);
    kernel->float32.clamped_swiglu(gate.const_data_ptr(), up.const_data_ptr(), 2.5,
                                   y.mutable_data_ptr(), gate.numel());
    expect_close(y, clamped, core::join(kernel->name, ": clamped"), 1e-6);
  }
}

// All numbers of float16, and NaN.
TEST(Kernels, WidenFloat16AsLibtorchDoes) {
  const at::Tensor halves = at::arange(1 << 16, at::kInt).to(at::kShort).view(at::kHalf);
  const at::Tensor expected = halves.to(at::kFloat), wide = at::empty_like(expected);
  for (const Kernel* kernel : runnable_kernels()) {
    kernel->float16_cache.widen(halves.const_data_ptr(), wide.mutable_data_ptr<float>(),
                                halves.numel());
    EXPECT_TRUE(at::equal(wide.isnan(), expected.isnan())) << kernel->name;
    EXPECT_TRUE(at::equal(wide.nan_to_num(7), expected.nan_to_num(7))) << kernel->name;
  }
}

// Ties, numbers on either side of them and of the smallest ones; larger ones than float16 has.
TEST(Kernels, NarrowToFloat16AsLibtorchDoesAndNoFurtherThanItsLargest) {
  const at::Tensor finite = at::arange(0x7BFF, at::kInt).to(at::kShort).view(at::kHalf);
  const at::Tensor low = finite.to(at::kFloat), high = at::roll(low, -1);
  const at::Tensor ties = ((low + high) / 2).slice(0, 0, -1);
  const at::Tensor bits = ties.view(at::kInt);
  const at::Tensor all =
      at::cat({low, ties, (bits + 1).view(at::kFloat), (bits - 1).view(at::kFloat),
               at::tensor({65504.F, 65519.F, 1e5F, INFINITY, 1e-30F, NAN})});
  const at::Tensor x = at::cat({all, -all});
  const at::Tensor expected = x.clamp(-65504, 65504).to(at::kHalf),
                   narrow = at::empty_like(expected);
  for (const Kernel* kernel : runnable_kernels()) {
    kernel->float16_cache.narrow(x.const_data_ptr<float>(), narrow.mutable_data_ptr(), x.numel());
    EXPECT_TRUE(at::equal(narrow.isnan(), expected.isnan())) << kernel->name;
    EXPECT_TRUE(at::equal(narrow.nan_to_num(7), expected.nan_to_num(7))) << kernel->name;
    const at::Tensor is_number = x.isnan().logical_not();
    EXPECT_TRUE(at::equal(narrow.signbit().masked_select(is_number),
                          expected.signbit().masked_select(is_number)))
        << kernel->name;
  }
}

// The last `tokens` of the positions are queries.
void check_behind(int64_t before, int64_t tokens, int64_t window) {
  const int64_t positions = before + tokens, dim = 32;
  const at::Tensor q = seeded({tokens, dim}, 1), k = seeded({positions, dim}, 2);
  const at::Tensor v = seeded({positions, dim}, 3);
  const at::Tensor ones = at::ones({tokens, positions}, at::kBool);
  const at::Tensor hidden = ones.triu(before + 1).logical_or(ones.tril(before - window));
  const at::Tensor expected =
      at::matmul(at::matmul(q, k.t()).masked_fill(hidden, -INFINITY).softmax(-1), v);
  const at::Tensor q_ = plain(q), kt = tiles(plain(k)), v_ = plain(v);
  const at::Tensor o = at::empty({tokens, dim}), lse = at::empty({tokens});
  const at::Tensor scratch = at::full({kAttendScratch}, NAN);
  AttentionHead head;
  head.tokens = tokens;
  head.before = before;
  head.head_dim = dim;
  head.window = window;
  head.q = q_.const_data_ptr<float>();
  head.kt = kt.const_data_ptr<float>();
  head.v = v_.const_data_ptr<float>();
  head.o = o.mutable_data_ptr<float>();
  head.lse = lse.mutable_data_ptr<float>();
  for (const Kernel* kernel : runnable_kernels()) {
    o.fill_(NAN);
    kernel->attend(head, scratch.mutable_data_ptr<float>());
    expect_close(o, expected,
                 core::join(kernel->name, ": ", before, " + ", tokens, ", window ", window), 1e-5);
  }
}

TEST(Kernels, AttendTokensBehindOthers) {
  for (const int64_t before : {1, 5, 63, 64, 200}) {
    for (const int64_t tokens : {1, 20, 64, 130}) {
      check_behind(before, tokens, before + tokens);
      check_behind(before, tokens, 70);
      check_behind(before, tokens, 3);
    }
  }
}

TEST(Kernels, AttendByProductsOfBfloat16) {
  const HalfAttention* half = active_half_attention();
  if (half == nullptr) GTEST_SKIP() << "no processor instructions for products of bfloat16";
  for (const int64_t tokens : {1, 3, 64, 65, 150, 151}) {
    for (const int64_t head_dim : {16, 64, 80}) {
      for (const int64_t window : {tokens, int64_t{70}}) {
        // Inputs are exact in bfloat16; probabilities and score gradients are rounded to 8 bits.
        AttentionCase(tokens, head_dim, window, at::kBFloat16)
            .check(half->attend, half->attend_backward, "bfloat16", 1e-2);
      }
    }
  }
}

}  // namespace
}  // namespace weft::nn::kernels
