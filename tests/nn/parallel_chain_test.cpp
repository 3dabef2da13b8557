#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include "tests/nn/layer_checks.h"
#include "weft/nn/parallel/column_parallel_linear.h"
#include "weft/nn/parallel/parallel_embedding.h"
#include "weft/nn/parallel/row_parallel_linear.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::expect_equal_on_all_ranks;
using test::on_ranks;
using test::own_ranges;
using test::seeded;

constexpr int64_t kTokens = 10, kWidth = 7, kHidden = 9, kOut = 5;

// ParallelEmbedding -> ColumnParallelLinear -> tanh -> RowParallelLinear, which neither gathers nor
// scatters in between.
struct ParallelChain {
  ParallelChain(const Group& group, at::ScalarType dtype) {
    ParallelEmbeddingOptions embedding_options;
    embedding_options.dtype = dtype;
    embedding_options.init = Init::normal();
    embedding = ParallelEmbedding(kTokens, kWidth, group, embedding_options);
    ColumnParallelOptions column_options;
    column_options.gather_output = false;
    column_options.dtype = dtype;
    column_options.init = Init::linear_default();
    column_options.bias_init = Init::linear_default_bias(kWidth);
    column = ColumnParallelLinear(kWidth, kHidden, group, column_options);
    RowParallelOptions row_options;
    row_options.input_is_parallel = true;
    row_options.dtype = dtype;
    row_options.init = Init::linear_default();
    row_options.bias_init = Init::linear_default_bias(kHidden);
    row = RowParallelLinear(kHidden, kOut, group, row_options);
  }

  at::Tensor forward(const at::Tensor& ids) {
    return row->forward(at::tanh(column->forward(embedding->forward(ids))));
  }

  ParallelEmbedding embedding{nullptr};
  ColumnParallelLinear column{nullptr};
  RowParallelLinear row{nullptr};
};

// The same in one process, of torch's own layers in float64.
struct WholeChain {
  explicit WholeChain(ParallelChain& chain)
      : embedding(kTokens, kWidth),
        first(test::whole_linear(*chain.column)),
        second(test::whole_linear(*chain.row)) {
    embedding->to(at::kDouble);
    const at::NoGradGuard no_grad;
    embedding->weight.copy_(chain.embedding->master_weight());
  }

  at::Tensor forward(const at::Tensor& ids) {
    return second->forward(at::tanh(first->forward(embedding->forward(ids))));
  }

  torch::nn::Embedding embedding;
  torch::nn::Linear first;
  torch::nn::Linear second;
};

void expect_same_gradients(ParallelChain& chain, WholeChain& whole, const Group& group,
                           double tolerance) {
  const auto parameters = chain.column->named_parameters();
  expect_close(chain.embedding->weight.grad(),
               test::piece(whole.embedding->weight.grad(), 1, group), "embedding", tolerance);
  expect_close(parameters["inner.weight"].grad(),
               own_ranges(whole.first->weight.grad(), *chain.column, 0), "column", tolerance);
  expect_close(parameters["inner.bias"].grad(),
               own_ranges(whole.first->bias.grad(), *chain.column, 0), "column bias", tolerance);
  expect_close(chain.row->named_parameters()["inner.weight"].grad(),
               own_ranges(whole.second->weight.grad(), *chain.row, 1), "row", tolerance);
  expect_close(chain.row->bias.grad(), whole.second->bias.grad(), "row bias", tolerance);
  expect_equal_on_all_ranks(chain.row->bias.grad(), group, "gradient of the row bias");
}

TEST(ParallelChain, OfEmbeddingColumnAndRowEqualsOneProcess) {
  on_ranks([](const Group& group) {
    const at::Tensor ids = at::tensor({0, 9, 3, 3, 5, 1, 0, 8}, at::kLong).view({2, 4});
    for (const auto dtype : test::layer_dtypes()) {
      ParallelChain chain(group, dtype);
      WholeChain whole(chain);
      const double tolerance = test::layer_tolerance(dtype);
      const at::Tensor grad = seeded({2, 4, kOut}, 2, dtype);
      const at::Tensor y_whole = whole.forward(ids), y = chain.forward(ids);
      expect_close(y, y_whole, "output", tolerance);
      expect_equal_on_all_ranks(y, group, "output");
      y_whole.backward(grad.to(at::kDouble));
      y.backward(grad);
      expect_same_gradients(chain, whole, group, tolerance);
    }
  });
}

TEST(ParallelChain, NeedsOneAllReduceForwardAndOneBackward) {
  on_ranks(
      [](const Group& group) {
        test::CountedGroup counted(group);
        ParallelChain chain(counted.group(), at::kFloat);
        counted.take_count();
        const at::Tensor y = chain.forward(at::tensor({0, 9, 3}, at::kLong));
        EXPECT_EQ(counted.take_count(), 1) << "of the row layer's output";
        y.sum().backward();
        EXPECT_EQ(counted.take_count(), 1) << "of the gradient of the column layer's input";
      },
      {2});
}

TEST(ParallelChain, TrainsAsOneProcessDoes) {
  on_ranks([](const Group& group) {
    torch::manual_seed(4);
    ParallelChain chain(group, at::kDouble);
    WholeChain whole(chain);
    const at::Tensor ids = at::tensor({0, 9, 3, 3, 5, 1, 0, 8}, at::kLong);
    const at::Tensor wanted = seeded({8, kOut}, 3);
    const auto step = [&](at::Tensor y, const std::vector<at::Tensor>& parameters) {
      for (at::Tensor p : parameters) p.mutable_grad() = at::Tensor();
      const at::Tensor loss = (y - wanted).square().mean();
      loss.backward();
      const at::NoGradGuard no_grad;
      for (at::Tensor p : parameters) p -= 0.5 * p.grad();
      return loss.item<double>();
    };
    const auto joined = [](std::initializer_list<const torch::nn::Module*> modules) {
      std::vector<at::Tensor> all;
      for (const auto* module : modules) {
        for (const at::Tensor& p : module->parameters()) all.push_back(p);
      }
      return all;
    };
    const auto own = joined({chain.embedding.get(), chain.column.get(), chain.row.get()});
    const auto wholes = joined({whole.embedding.get(), whole.first.get(), whole.second.get()});
    double first = 0, last = 0;
    for (int i = 0; i < 20; ++i) {
      last = step(chain.forward(ids), own);
      if (i == 0) first = last;
      EXPECT_NEAR(last, step(whole.forward(ids), wholes), 1e-10) << "step " << i;
    }
    EXPECT_LT(last, first / 2);
    expect_equal_on_all_ranks(chain.row->bias, group, "the bias after training");
    expect_close(chain.embedding->master_weight(), whole.embedding->weight, "table", 1e-10);
    expect_close(chain.column->master_weight(), whole.first->weight, "column", 1e-10);
    expect_close(chain.row->master_weight(), whole.second->weight, "row", 1e-10);
  });
}

}  // namespace
}  // namespace weft::nn
