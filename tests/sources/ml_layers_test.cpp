// The snippets of ml's model parallel layers, as a user of weft writes them:
// tests/sources/README.md has the table of lines.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>

#include <cmath>

#include "tests/ops/tensor_checks.h"
#include "tests/support/run_ranks.h"
#include "weft/dist.h"
#include "weft/nn.h"
#include "weft/ops.h"

namespace {

using namespace weft::nn;
using namespace weft::ops;
using weft::dist::init_parallelism;
using weft::dist::parallel_group_info;
using weft::dist::World;
using weft::test::expect_close;

constexpr int64_t vocab_size = 18, in_features = 6, out_features = 10, bsz = 2, tsz = 5;

// The docstring's two-layer model, beside the single-process one that it names.
void expect_the_docstrings_model() {
  const bool bias = true;
  at::manual_seed(3);
  ParallelEmbedding parallel_embedding(vocab_size, in_features);
  ColumnParallelLinear column_parallel_linear(in_features, out_features, bias,
                                              /*gather_output=*/false);
  RowParallelLinear row_parallel_linear(out_features, out_features, bias,
                                        /*input_is_parallel=*/true);
  const at::Tensor x = at::arange(bsz * tsz).view({bsz, tsz}) % vocab_size;
  const at::Tensor y = row_parallel_linear(column_parallel_linear(parallel_embedding(x)));

  const at::Tensor embedded = at::embedding(parallel_embedding->master_weight(), x);
  const at::Tensor h = at::linear(embedded, column_parallel_linear->master_weight(),
                                  column_parallel_linear->master_bias());
  const at::Tensor whole =
      at::linear(h, row_parallel_linear->master_weight(), row_parallel_linear->master_bias());
  expect_close(y.detach(), whole, "the docstring's model", 1e-5);
}

TEST(MlDocstring, TheModelOfTwoLayers) {
  for (const int n : {1, 2, 4}) {
    weft::test::run_ranks(n, [](const World& world) {
      init_parallelism(/*model=*/world.size());
      expect_the_docstrings_model();
      weft::dist::reset_parallelism();
      // One rank a model: what the default is.
      init_parallelism();
      expect_the_docstrings_model();
      weft::dist::reset_parallelism();
    });
  }
}

TEST(MlFunctions, ReduceScatterAndGatherOverTheModelGroup) {
  weft::test::run_ranks(4, [](const World& world) {
    init_parallelism(/*model=*/2, /*pipe=*/1);
    const auto& mp = parallel_group_info().mp;
    EXPECT_EQ(mp.rank(), world.rank() % 2);
    EXPECT_EQ(mp.size(), 2);
    const at::Tensor x = at::arange(6, at::kDouble).view({1, 6}).set_requires_grad(true);
    const at::Tensor own = mp_scatter(x);
    expect_close(own.detach(), x.detach().narrow(-1, 3 * mp.rank(), 3), "mp_scatter");
    expect_close(mp_gather(own).detach(), x.detach(), "mp_gather");
    expect_close(mp_reduce(x.detach()), 2 * x.detach(), "mp_reduce");
    expect_close(mp_reduce(x.detach(), weft::dist::ReduceOp::kMax), x.detach(), "maximum");
    mp_copy(x).sum().backward();
    expect_close(x.grad(), at::full({1, 6}, 2.0, at::kDouble), "gradient of mp_copy");
    weft::dist::reset_parallelism();
  });
}

// The same by fairscale's and Megatron's names.
TEST(MegatronNames, StandForTheSameGroupsAndOperations) {
  weft::test::run_ranks(4, [](const World&) {
    using namespace weft::dist;
    initialize_model_parallel(/*tensor_model_parallel_size=*/2,
                              /*pipeline_model_parallel_size=*/2);
    const ParallelGroupInfo& groups = parallel_group_info();
    EXPECT_EQ(get_model_parallel_group(), groups.mp);
    EXPECT_EQ(get_model_parallel_rank(), groups.mp.rank());
    EXPECT_EQ(get_model_parallel_world_size(), 2);
    EXPECT_EQ(get_tensor_model_parallel_group(), groups.mp);
    EXPECT_EQ(get_tensor_model_parallel_rank(), groups.mp.rank());
    EXPECT_EQ(get_tensor_model_parallel_world_size(), 2);
    EXPECT_EQ(get_pipeline_model_parallel_rank(), groups.pp.rank());
    EXPECT_EQ(get_pipeline_model_parallel_world_size(), 2);
    EXPECT_EQ(get_data_parallel_rank(), 0);
    EXPECT_EQ(get_data_parallel_world_size(), 1);
    const at::Tensor x = at::arange(24, at::kDouble).view({4, 6});
    const int64_t rank = groups.mp.rank();
    for (const auto& copied :
         {copy_to_model_parallel_region(x), copy_to_tensor_model_parallel_region(x)}) {
      expect_close(copied, x, "copy");
    }
    for (const auto& sum :
         {reduce_from_model_parallel_region(x), reduce_from_tensor_model_parallel_region(x)}) {
      expect_close(sum, 2 * x, "reduce");
    }
    for (const auto& part :
         {scatter_to_model_parallel_region(x), scatter_to_tensor_model_parallel_region(x)}) {
      expect_close(part, x.narrow(1, 3 * rank, 3), "scatter");
      expect_close(gather_from_model_parallel_region(part), x, "gather");
      expect_close(gather_from_tensor_model_parallel_region(part), x, "gather");
    }
    const at::Tensor rows = scatter_to_sequence_parallel_region(x);
    expect_close(rows, x.narrow(0, 2 * rank, 2), "scatter of a sequence");
    expect_close(gather_from_sequence_parallel_region(rows), x, "gather of a sequence");
    expect_close(reduce_scatter_to_sequence_parallel_region(x), 2 * rows, "reduce-scatter");
    destroy_model_parallel();
  });
}

// Defaults: xavier_normal weights, no bias at the beginning, whole outputs, whole inputs.
TEST(MlLayers, TheDefaultsAreTheFiles) {
  weft::test::run_ranks(2, [](const World&) {
    init_parallelism(2);
    at::manual_seed(8);
    ColumnParallelLinear column(200, 300);
    RowParallelLinear row(300, 200);
    ParallelEmbedding embedding(300, 200);
    const double deviation = std::sqrt(2.0 / 500);
    for (const at::Tensor& weight :
         {column->master_weight(), row->master_weight(), embedding->master_weight()}) {
      // Ten standard errors of the deviation of 60,000 numbers.
      EXPECT_NEAR(weight.std().item<double>(), deviation, 0.03 * deviation);
    }
    EXPECT_EQ(column->master_bias().abs().max().item<double>(), 0);
    EXPECT_EQ(row->master_bias().abs().max().item<double>(), 0);
    const at::Tensor x = at::ones({3, 200});
    EXPECT_EQ(column(x).sizes(), (std::vector<int64_t>{3, 300})) << "gather_output";
    EXPECT_EQ(row(column(x)).sizes(), (std::vector<int64_t>{3, 200})) << "a whole input";
    EXPECT_EQ(column->weight().sizes(), (std::vector<int64_t>{150, 200}));
    weft::dist::reset_parallelism();
  });
}

}  // namespace
