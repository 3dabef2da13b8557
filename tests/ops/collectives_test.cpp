#include "weft/ops/collectives.h"

#include <torch/csrc/autograd/autograd.h>

#include <numeric>

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

TEST(Collectives, CutBySizesThatFollowNoRule) {
  on_ranks([](const Group& group) {
    const int64_t n = group.size(), rank = group.rank();
    std::vector<int64_t> sizes;  // 1, 2, …, and the last rank has nothing unless it is alone
    for (int64_t r = 0; r + 1 < n; ++r) sizes.push_back(r + 1);
    sizes.push_back(n == 1 ? 3 : 0);
    const int64_t length = std::max<int64_t>(3, n * (n - 1) / 2);
    sizes[0] += length - std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    const int64_t start = std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
    const at::Tensor whole = seeded({2, length}, 1), grad = seeded({2, length}, 2);
    const at::Tensor mine = whole.narrow(1, start, sizes[rank]);
    const at::Tensor x = leaf(whole), z = leaf(whole);
    const at::Tensor y = mp_scatter(x, 1, group, sizes);
    EXPECT_TRUE(at::equal(y, mine));
    y.backward(grad.narrow(1, start, sizes[rank]));
    expect_close(x.grad(), grad, "gradient of a scatter", 0);
    const at::Tensor summed = reduce_scatter_sequence(z, 1, group, sizes);
    EXPECT_TRUE(at::allclose(summed, mine * static_cast<double>(n)));
    summed.backward(grad.narrow(1, start, sizes[rank]));
    expect_close(z.grad(), grad, "gradient of a reduce-scatter", 0);
  });
}

// An operation, and whether what goes in and out is the same on all ranks ("common") or each
// rank's own. A scalar of a common tensor is that of one rank; one of own tensors sums over ranks.
struct Checked {
  const char* name;
  std::function<at::Tensor(const at::Tensor&, const Group&)> run;
  bool common_in;
  bool common_out;
};

const std::vector<Checked>& checked_operations() {
  static const std::vector<Checked> all = {
      {"mp_copy", [](const auto& x, const auto& g) { return mp_copy(x, g); }, true, false},
      {"mp_reduce", [](const auto& x, const auto& g) { return mp_reduce(x, g); }, false, true},
      {"mp_reduce, average",
       [](const auto& x, const auto& g) { return mp_reduce(x, g, ReduceOp::kAverage); }, false,
       true},
      {"mp_scatter", [](const auto& x, const auto& g) { return mp_scatter(x, 1, g); }, true, false},
      {"mp_gather", [](const auto& x, const auto& g) { return mp_gather(x, 1, g); }, false, true},
      {"gather_sequence", [](const auto& x, const auto& g) { return gather_sequence(x, 1, g); },
       false, false},
      {"reduce_scatter_sequence",
       [](const auto& x, const auto& g) { return reduce_scatter_sequence(x, 1, g); }, false,
       false}};
  return all;
}

// The part of a scalar that this rank's graph holds: weights differ by rank unless y is common.
at::Tensor own_scalar(const at::Tensor& y, bool is_common, uint64_t seed, const Group& group) {
  const uint64_t rank = is_common ? 0 : static_cast<uint64_t>(group.rank());
  return (seeded(y.sizes(), seed + rank) * at::tanh(y)).sum();
}

double whole_scalar(const at::Tensor& own, bool is_common, const Group& group) {
  at::Tensor sum = own.detach().clone();
  if (!is_common) group.all_reduce(sum);
  return sum.item<double>();
}

at::Tensor gradient(const at::Tensor& scalar, const at::Tensor& x, bool keep_graph) {
  return torch::autograd::grad({scalar}, {x}, {}, keep_graph, keep_graph)[0];
}

// `order` 1: the scalar of the operation itself; 2: a scalar of its gradient.
at::Tensor scalar_of(const Checked& operation, const at::Tensor& x, int order, const Group& group) {
  // tanh makes the second derivative depend on the input; .t() makes it one with gaps.
  const at::Tensor y = operation.run(at::tanh(x).t(), group);
  const at::Tensor first = own_scalar(y, operation.common_out, 40, group);
  if (order == 1) return first;
  return own_scalar(gradient(first, x, true), operation.common_in, 60, group);
}

// For each order: (f(x + step) - f(x - step)) / (2 step) against the gradient, element by element;
// a common input changes on all ranks at once, else on one rank after the other.
void expect_right_gradient(const Checked& operation, int order, const Group& group) {
  constexpr double kStep = 1e-5;
  const uint64_t rank = operation.common_in ? 0 : static_cast<uint64_t>(group.rank());
  const at::Tensor x = leaf(seeded({5, 2}, 30 + rank));
  const at::Tensor analytic = gradient(scalar_of(operation, x, order, group), x, false);
  const bool common = order == 1 ? operation.common_out : operation.common_in;
  const auto value_at = [&](int64_t who, int64_t i, double step) {
    const at::Tensor moved = leaf(x);
    const bool moves = operation.common_in || who == group.rank();
    if (moves) moved.data().view(-1)[i] += step;
    return whole_scalar(scalar_of(operation, moved, order, group), common, group);
  };
  for (int64_t who = 0; who < (operation.common_in ? 1 : group.size()); ++who) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double numeric = (value_at(who, i, kStep) - value_at(who, i, -kStep)) / (2 * kStep);
      if (!operation.common_in && who != group.rank()) continue;
      EXPECT_NEAR(numeric, analytic.reshape(-1)[i].item<double>(), 1e-8)
          << operation.name << ", order " << order << ", rank " << who << ", element " << i;
    }
  }
}

TEST(Collectives, HaveTheGradientsThatFiniteDifferencesGive) {
  on_ranks([](const Group& group) {
    for (const Checked& operation : checked_operations())
      expect_right_gradient(operation, 1, group);
  });
}

TEST(Collectives, HaveTheGradientsOfGradientsThatFiniteDifferencesGive) {
  on_ranks([](const Group& group) {
    for (const Checked& operation : checked_operations())
      expect_right_gradient(operation, 2, group);
  });
}

TEST(Collectives, SayWhoseStorageTheyReturn) {
  on_ranks(
      [](const Group& group) {
        const at::Tensor x = seeded({6, 6}, 1);
        EXPECT_TRUE(mp_copy(x, group).is_alias_of(x));
        for (const at::Tensor& y :
             {mp_reduce(x, group), mp_scatter(x, 0, group), mp_gather(x, 0, group),
              gather_sequence(x, 0, group), reduce_scatter_sequence(x, 0, group)}) {
          EXPECT_FALSE(y.is_alias_of(x));
          EXPECT_TRUE(y.is_contiguous());
        }
        expect_close(x, seeded({6, 6}, 1), "the input stays", 0);
      },
      {2});
}

TEST(Collectives, RefuseSizesThatDoNotSumOnAllRanks) {
  on_ranks(
      [](const Group& group) {
        const at::Tensor x = seeded({6, 2}, 1);
        for (const auto& [sizes, text] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
                 {{3, 2}, "[3, 2]"}, {{6}, "[6]"}, {{7, -1}, "[7, -1]"}}) {
          const std::string tail =
              ": sizes " + text + ", expected 2 lengths, one per rank, that sum to 6";
          EXPECT_EQ(error_text([&, &s = sizes] { mp_scatter(x, 0, group, s); }),
                    "ShapeError: ops.mp_scatter" + tail);
          EXPECT_EQ(error_text([&, &s = sizes] { reduce_scatter_sequence(x, 0, group, s); }),
                    "ShapeError: ops.reduce_scatter_sequence" + tail);
        }
      },
      {2});
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

TEST(Collectives, TakeTheModelGroupWhenNoneIsGiven) {
  test::run_ranks(4, [](dist::World& world) {
    const auto ranks = static_cast<double>(world.size());
    expect_close(mp_reduce(at::ones({2}, at::kDouble)), at::full({2}, ranks, at::kDouble), "all");
    expect_close(mp_reduce(at::ones({2}, at::kDouble), dist::ReduceOp::kAverage),
                 at::ones({2}, at::kDouble), "average of all");
    dist::reset_parallelism();
    dist::init_parallelism(world, 2, 1);
    const at::Tensor x = at::full({2}, world.rank(), at::kDouble);
    const double first = static_cast<double>(world.rank() / 2 * 2);
    expect_close(mp_reduce(x), at::full({2}, 2 * first + 1, at::kDouble), "sum of a pair");
    expect_close(mp_gather(x.narrow(0, 0, 1)), at::tensor({first, first + 1}, at::kDouble),
                 "a pair side by side");
    dist::reset_parallelism();
  });
}

}  // namespace
}  // namespace weft::ops
