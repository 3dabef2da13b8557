#include "weft/ops/collectives.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::ops {
namespace {

using dist::Group;
using dist::ReduceOp;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::piece;
using test::seeded;
using test::seeded_sum;
using testing::error_text;

const std::vector<int64_t> kShape = {7, 3, 5};

// Each rank's own tensor; every rank can build that of another.
at::Tensor own(const Group& group, uint64_t first_seed) {
  return seeded(kShape, first_seed + static_cast<uint64_t>(group.rank()));
}

TEST(MpCopy, IsIdentityAndSumsOrAveragesGradients) {
  on_ranks([](const Group& group) {
    const auto n = static_cast<double>(group.size());
    const at::Tensor sum = seeded_sum(kShape, 20, group.size());
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const at::Tensor x = leaf(seeded(kShape, 1));
      const at::Tensor y = mp_copy(x, group, op);
      expect_close(y, x, "forward", 0);
      y.backward(own(group, 20));
      expect_close(x.grad(), op == ReduceOp::kSum ? sum : sum / n, "gradient");
    }
  });
}

TEST(MpReduce, SumsOrAveragesAndPassesTheGradientThrough) {
  on_ranks([](const Group& group) {
    const auto n = static_cast<double>(group.size());
    const at::Tensor sum = seeded_sum(kShape, 10, group.size());
    const at::Tensor grad = seeded(kShape, 2);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const double scale = op == ReduceOp::kSum ? 1.0 : 1.0 / n;
      const at::Tensor x = leaf(own(group, 10));
      const at::Tensor y = mp_reduce(x, group, op);
      expect_close(y, sum * scale, "forward");
      expect_close(x, own(group, 10), "the input stays", 0);
      y.backward(grad);
      expect_close(x.grad(), grad * scale, "gradient");
    }
  });
}

TEST(MpReduce, TakesMinMaxAndProductWithoutGradient) {
  on_ranks(
      [](const Group& group) {
        std::vector<at::Tensor> all;
        for (int64_t r = 0; r < group.size(); ++r) all.push_back(seeded(kShape, 10 + r));
        const at::Tensor stacked = at::stack(all);
        const at::Tensor x = own(group, 10);
        expect_close(mp_reduce(x, group, ReduceOp::kMin), stacked.amin(0), "min", 0);
        expect_close(mp_reduce(x, group, ReduceOp::kMax), stacked.amax(0), "max", 0);
        expect_close(mp_reduce(x, group, ReduceOp::kProduct), stacked.prod(0), "product");
        const at::NoGradGuard no_grad;
        expect_close(mp_reduce(leaf(x), group, ReduceOp::kMax), stacked.amax(0), "no graph", 0);
      },
      {1, 3});
}

TEST(MpScatter, CutsUnevenlyAndGathersTheGradient) {
  on_ranks([](const Group& group) {
    const at::Tensor grad = seeded(kShape, 2);
    for (const int64_t dim : {int64_t{0}, int64_t{-1}}) {
      const at::Tensor x = leaf(seeded(kShape, 1));
      const at::Tensor y = mp_scatter(x, dim, group);
      expect_close(y, piece(x, dim, group), "forward", 0);
      EXPECT_EQ(y.storage().nbytes(), y.nbytes()) << "a shard owns its memory";
      y.backward(piece(grad, dim, group));
      expect_close(x.grad(), grad, "gradient", 0);
    }
  });
}

TEST(MpGather, JoinsUnevenShardsAndCutsTheGradient) {
  on_ranks([](const Group& group) {
    const at::Tensor whole = seeded(kShape, 1), grad = seeded(kShape, 2);
    for (const int64_t dim : {int64_t{0}, int64_t{-1}}) {
      std::vector<int64_t> sizes;
      for (int64_t r = 0; r < group.size(); ++r) {
        sizes.push_back(shard::part(whole.size(dim), group.size(), r).length);
      }
      for (const auto& given : {sizes, std::vector<int64_t>{}}) {
        const at::Tensor x = leaf(piece(whole, dim, group));
        const at::Tensor y = mp_gather(x, dim, group, given);
        expect_close(y, whole, "forward", 0);
        y.backward(grad);
        expect_close(x.grad(), piece(grad, dim, group), "gradient", 0);
      }
    }
  });
}

TEST(MpGather, ExchangesSizesThatFollowNoRule) {
  on_ranks([](const Group& group) {
    const int64_t n = group.size(), rank = group.rank();
    const at::Tensor whole = seeded({n * (n + 1) / 2, 2}, 1);
    const int64_t start = rank * (rank + 1) / 2;
    const at::Tensor x = leaf(whole.narrow(0, start, rank + 1));
    const at::Tensor y = mp_gather(x, 0, group);
    expect_close(y, whole, "forward", 0);
    y.backward(whole * 3);
    expect_close(x.grad(), whole.narrow(0, start, rank + 1) * 3, "gradient");
  });
}

TEST(GatherSequence, JoinsAndReduceScattersTheGradient) {
  on_ranks([](const Group& group) {
    const at::Tensor whole = seeded(kShape, 1);
    const at::Tensor sum = seeded_sum(kShape, 20, group.size());
    for (const int64_t dim : {int64_t{0}, int64_t{-1}}) {
      const at::Tensor x = leaf(piece(whole, dim, group));
      const at::Tensor y = gather_sequence(x, dim, group);
      expect_close(y, whole, "forward", 0);
      y.backward(own(group, 20));
      expect_close(x.grad(), piece(sum, dim, group), "gradient");
    }
  });
}

TEST(ReduceScatterSequence, SumsCutsAndGathersTheGradient) {
  on_ranks([](const Group& group) {
    const at::Tensor sum = seeded_sum(kShape, 10, group.size());
    const at::Tensor grad = seeded(kShape, 2);
    for (const int64_t dim : {int64_t{0}, int64_t{-1}}) {
      const at::Tensor x = leaf(own(group, 10));
      const at::Tensor y = reduce_scatter_sequence(x, dim, group);
      expect_close(y, piece(sum, dim, group), "forward");
      y.backward(piece(grad, dim, group));
      expect_close(x.grad(), grad, "gradient", 0);
    }
  });
}

TEST(Collectives, TakeTensorsWithGaps) {
  on_ranks(
      [](const Group& group) {
        const at::Tensor whole = seeded({5, 7}, 1);
        const at::Tensor x = leaf(whole).t();
        const auto n = static_cast<double>(group.size());
        expect_close(mp_reduce(x, group), whole.t() * n, "reduce");
        expect_close(mp_scatter(x, 0, group), piece(whole.t(), 0, group), "scatter", 0);
        expect_close(mp_gather(piece(whole, 1, group).t(), 0, group), whole.t(), "gather", 0);
        expect_close(reduce_scatter_sequence(x, 0, group), piece(whole.t(), 0, group) * n,
                     "reduce-scatter");
      },
      {3});
}

// sum(c * (sum over ranks of tanh(x * w_rank))^2): x is the same on all ranks, w is not.
at::Tensor loss_of(const at::Tensor& x, const at::Tensor& w, const Group& group) {
  const at::Tensor y = mp_reduce(at::tanh(mp_copy(x, group) * w), group);
  return (seeded(x.sizes(), 9) * y * y).sum();
}

TEST(Collectives, HaveTheGradientsThatFiniteDifferencesGive) {
  constexpr double kStep = 1e-5;
  on_ranks([](const Group& group) {
    const at::Tensor x = leaf(seeded({3, 2}, 1));
    const at::Tensor w = leaf(seeded({3, 2}, 30 + static_cast<uint64_t>(group.rank())));
    loss_of(x, w, group).backward();
    const at::NoGradGuard no_grad;
    // -1 stands for x, which all ranks change together; else the rank that changes its w.
    for (int64_t who = -1; who < group.size(); ++who) {
      for (int64_t i = 0; i < x.numel(); ++i) {
        const at::Tensor step = at::zeros_like(x);
        step.view(-1)[i] = kStep;
        const at::Tensor dx = who < 0 ? step : at::zeros_like(x);
        const at::Tensor dw = who == group.rank() ? step : at::zeros_like(x);
        const double up = loss_of(x + dx, w + dw, group).item<double>();
        const double down = loss_of(x - dx, w - dw, group).item<double>();
        if (who >= 0 && who != group.rank()) continue;
        const double gradient = (who < 0 ? x : w).grad().view(-1)[i].item<double>();
        EXPECT_NEAR((up - down) / (2 * kStep), gradient, 1e-7) << "of " << who << " at " << i;
      }
    }
  });
}

TEST(Collectives, ReturnTheInputInAGroupOfOne) {
  const Group alone;
  const at::Tensor x = leaf(seeded(kShape, 1));
  for (const at::Tensor& y :
       {mp_copy(x, alone), mp_reduce(x, alone), mp_scatter(x, 0, alone), mp_gather(x, 0, alone),
        gather_sequence(x, 0, alone), reduce_scatter_sequence(x, 0, alone)}) {
    EXPECT_TRUE(y.is_same(x));
  }
}

TEST(Collectives, RefuseReductionsWithoutGradient) {
  const Group alone;
  const at::Tensor x = leaf(seeded(kShape, 1));
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    EXPECT_EQ(error_text([&] { mp_reduce(x, alone, op); }),
              "ConfigError: ops.mp_reduce: min, max and product have no gradient over ranks; "
              "detach the input or use sum");
    EXPECT_EQ(error_text([&] { mp_copy(x, alone, op); }),
              "ConfigError: ops.mp_copy: a gradient is summed or averaged; use one of these");
  }
}

TEST(Collectives, RefuseADimThatTheTensorLacks) {
  const Group alone;
  const at::Tensor x = seeded({2, 2}, 1);
  const std::string tail = " of a tensor with 2 dims; expected -2 to 1";
  EXPECT_EQ(error_text([&] { mp_scatter(x, 2, alone); }),
            "ShapeError: ops.mp_scatter: dim 2" + tail);
  EXPECT_EQ(error_text([&] { mp_gather(x, -3, alone); }),
            "ShapeError: ops.mp_gather: dim -3" + tail);
  EXPECT_EQ(error_text([&] { gather_sequence(x, 5, alone); }),
            "ShapeError: ops.gather_sequence: dim 5" + tail);
  EXPECT_EQ(error_text([&] { reduce_scatter_sequence(x, 2, alone); }),
            "ShapeError: ops.reduce_scatter_sequence: dim 2" + tail);
}

TEST(Collectives, RefuseToLeaveARankWithNothing) {
  on_ranks(
      [](const Group& group) {
        const std::string expected =
            "ConfigError: shard.part: 2 units over 3 ranks leaves a rank with nothing; use 1 to 2 "
            "ranks";
        const at::Tensor x = seeded({2, 2}, 1);
        EXPECT_EQ(error_text([&] { mp_scatter(x, 0, group); }), expected);
        EXPECT_EQ(error_text([&] { reduce_scatter_sequence(x, 1, group); }), expected);
      },
      {3});
}

TEST(MpCopy, OfItsOwnResultReducesTheGradientOnce) {
  on_ranks([](const Group& group) {
    const at::Tensor x = leaf(seeded({3, 2}, 1));
    const at::Tensor once = mp_copy(x, group);
    EXPECT_TRUE(mp_copy(once, group).is_same(once));
    const at::Tensor grad = seeded({3, 2}, 10 + group.rank());
    mp_copy(once, group).backward(grad);
    expect_close(x.grad(), seeded_sum({3, 2}, 10, group.size()), "gradient");
  });
}

}  // namespace
}  // namespace weft::ops
