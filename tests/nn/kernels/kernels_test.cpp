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

TEST(Kernels, AttendForwardAndBackward) {
  for (const int64_t tokens : {1, 64, 150}) {
    const at::Tensor q = test::leaf(seeded({tokens, 32}, 1)),
                     k = test::leaf(seeded({tokens, 32}, 2));
    const at::Tensor v = test::leaf(seeded({tokens, 32}, 3)), d_o = seeded({tokens, 32}, 4);
    const at::Tensor hidden = at::ones({tokens, tokens}, at::kBool).triu(1);
    const at::Tensor scores = at::matmul(q, k.t()).masked_fill(hidden, -INFINITY);
    const at::Tensor o = at::matmul(scores.softmax(-1), v);
    o.backward(d_o);
    const auto plain = [](const at::Tensor& x) { return x.detach().to(at::kFloat).contiguous(); };
    const at::Tensor fq = plain(q), fk = plain(k), fv = plain(v), fd = plain(d_o);
    const at::Tensor kt = tiles(fk), vt = tiles(fv), delta = plain((o * d_o).sum(-1));
    for (const Kernel* kernel : runnable_kernels()) {
      at::Tensor out = at::empty({tokens, 32}), lse = at::empty({tokens}),
                 scratch = at::empty({kAttendScratch});
      at::Tensor d_q = at::empty({tokens, 32}), d_k = at::zeros({tokens, 32}),
                 d_v = at::zeros({tokens, 32});
      AttentionHead head;
      head.tokens = head.window = tokens;
      head.head_dim = 32;
      head.q = fq.const_data_ptr<float>();
      head.k = fk.const_data_ptr<float>();
      head.v = fv.const_data_ptr<float>();
      head.kt = kt.const_data_ptr<float>();
      head.vt = vt.const_data_ptr<float>();
      head.o = out.mutable_data_ptr<float>();
      head.lse = lse.mutable_data_ptr<float>();
      head.d_o = fd.const_data_ptr<float>();
      head.delta = delta.const_data_ptr<float>();
      head.d_q = d_q.mutable_data_ptr<float>();
      head.d_k = d_k.mutable_data_ptr<float>();
      head.d_v = d_v.mutable_data_ptr<float>();
      kernel->attend(head, scratch.mutable_data_ptr<float>());
      kernel->attend_backward(head, scratch.mutable_data_ptr<float>());
      expect_close(out, o, core::join(kernel->name, " o of ", tokens), 1e-5);
      expect_close(lse, scores.logsumexp(-1), core::join(kernel->name, " lse of ", tokens), 1e-5);
      expect_close(d_q, q.grad(), core::join(kernel->name, " q of ", tokens), 1e-5);
      expect_close(d_k, k.grad(), core::join(kernel->name, " k of ", tokens), 1e-5);
      expect_close(d_v, v.grad(), core::join(kernel->name, " v of ", tokens), 1e-5);
    }
  }
}

}  // namespace
}  // namespace weft::nn::kernels
