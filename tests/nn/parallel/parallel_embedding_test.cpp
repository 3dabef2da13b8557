#include "weft/nn/parallel/parallel_embedding.h"

#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include <limits>
#include <sstream>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::expect_equal_on_all_ranks;
using test::on_ranks;
using test::piece;
using test::seeded;
using testing::error_text;

constexpr int64_t kTableRows = 10, kTableWidth = 7;

// Token 3 often, 2 never.
at::Tensor some_ids() {
  return at::tensor({0, 1, 9, 3, 4, 5, 6, 7, 8, 3, 3, 0}, at::kLong).view({2, 6});
}

torch::nn::Embedding torch_embedding(const at::Tensor& table,
                                     const ParallelEmbeddingOptions& options) {
  torch::nn::Embedding whole(torch::nn::EmbeddingOptions(kTableRows, kTableWidth)
                                 .padding_idx(options.padding_idx)
                                 .max_norm(options.max_norm)
                                 .norm_type(options.norm_type)
                                 .scale_grad_by_freq(options.scale_grad_by_freq)
                                 .sparse(options.sparse)
                                 ._weight(table.clone()));
  return whole;
}

void expect_embedding_equals_torch(const Group& group, const ParallelEmbeddingOptions& options,
                                   at::ScalarType dtype, const std::string& name) {
  // torch itself takes max_norm and norm_type as float32.
  const double tolerance = dtype == at::kDouble ? 1e-6 : test::layer_tolerance(dtype);
  const at::Tensor table = seeded({kTableRows, kTableWidth}, 1, dtype);
  auto whole = torch_embedding(table, options);
  auto layer = parallel_embedding_from_pretrained(table, group, options, false);
  const at::Tensor grad = seeded({2, 6, kTableWidth}, 2, dtype);
  const at::Tensor y_whole = whole->forward(some_ids()), y = layer->forward(some_ids());
  ASSERT_EQ(y.scalar_type(), dtype);
  const double exact = options.max_norm ? tolerance : 0;
  expect_close(y, y_whole, name + ": output", exact);
  expect_equal_on_all_ranks(y, group, name + ": output");
  expect_close(layer->master_weight(), whole->weight, name + ": table afterwards", exact);
  y_whole.backward(grad);
  y.backward(grad);
  ASSERT_EQ(layer->weight.grad().is_sparse(), options.sparse) << name;
  const auto dense = [&](const at::Tensor& t) { return options.sparse ? t.to_dense() : t; };
  expect_close(dense(layer->weight.grad()), piece(dense(whole->weight.grad()), 1, group),
               name + ": gradient", tolerance);
  if (options.padding_idx) {
    EXPECT_EQ(dense(layer->weight.grad())[3].abs().max().item<double>(), 0) << name;
  }
}

std::vector<std::pair<std::string, ParallelEmbeddingOptions>> option_cases() {
  std::vector<std::pair<std::string, ParallelEmbeddingOptions>> cases(6);
  cases[0].first = "plain";
  cases[1].first = "padding_idx";
  cases[1].second.padding_idx = 3;
  cases[2].first = "negative padding_idx";
  cases[2].second.padding_idx = -7;
  cases[3].first = "scale_grad_by_freq";
  cases[3].second.scale_grad_by_freq = true;
  cases[4].first = "sparse";
  cases[4].second.sparse = true;
  cases[4].second.padding_idx = 3;
  cases[5].first = "all but sparse";
  cases[5].second.padding_idx = 3;
  cases[5].second.scale_grad_by_freq = true;
  cases[5].second.max_norm = 1.5;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double p : {2.0, 1.0, 3.5, 0.5, 0.0, kInfinity, -kInfinity}) {
    ParallelEmbeddingOptions options;
    options.norm_type = p;
    // Between the norms of the rows, so that some are scaled and some are not.
    options.max_norm = p == 0 ? 6.5 : p == 0.5 ? 30.0 : p == 1 ? 5.0 : p == -kInfinity ? 0.1 : 1.3;
    cases.emplace_back(core::join("max_norm by p = ", p), options);
  }
  return cases;
}

TEST(ParallelEmbedding, EqualsTorchsEmbeddingOnTheWhole) {
  on_ranks([](const Group& group) {
    for (const auto& [name, options] : option_cases()) {
      for (const auto dtype : test::layer_dtypes()) {
        expect_embedding_equals_torch(group, options, dtype, core::join(name, ", ", dtype));
      }
    }
  });
}

TEST(ParallelEmbedding, RenormalizesOnlyRowsThatWereLookedUpAndTooLong) {
  on_ranks([](const Group& group) {
    ParallelEmbeddingOptions options;
    options.max_norm = 2;
    const at::Tensor table = at::ones({kTableRows, kTableWidth});
    at::Tensor whole = table.clone();
    whole[4].mul_(0.1);
    auto layer = parallel_embedding_from_pretrained(whole, group, options);
    EXPECT_FALSE(layer->weight.requires_grad()) << "frozen unless said otherwise";
    EXPECT_EQ(layer->weight.storage().nbytes(), layer->weight.nbytes())
        << "a shard owns its memory";
    layer->forward(at::tensor({1, 4, 1}, at::kInt));
    whole[1].mul_(2 / (std::sqrt(7.0) + 1e-7));
    expect_close(layer->master_weight(), whole, "table", 1e-6);
    EXPECT_TRUE(at::equal(layer->master_weight()[4], whole[4])) << "short enough";
    EXPECT_TRUE(at::equal(layer->master_weight()[0], table[0])) << "not looked up";
  });
}

TEST(ParallelEmbedding, BeginsAlikeOnAnyNumberOfRanks) {
  on_ranks([](const Group& group) {
    ParallelEmbeddingOptions options;
    options.padding_idx = -1;
    torch::manual_seed(3);
    const ParallelEmbedding alone(kTableRows, kTableWidth, Group(), options);
    torch::manual_seed(3 + static_cast<uint64_t>(group.rank()));
    ParallelEmbedding layer(kTableRows, kTableWidth, group, options);
    const at::Tensor first = layer->master_weight();
    EXPECT_TRUE(at::equal(first, alone->master_weight()));
    EXPECT_EQ(first[kTableRows - 1].abs().max().item<double>(), 0) << "padding begins with zeros";
    EXPECT_NEAR(first.std().item<double>(), std::sqrt(2.0 / (kTableRows + kTableWidth)), 0.1)
        << "xavier";
    layer->reset_parameters();
    EXPECT_FALSE(at::equal(layer->master_weight(), first));
    EXPECT_EQ(layer->master_weight()[kTableRows - 1].abs().max().item<double>(), 0);
    EXPECT_TRUE(layer->weight.requires_grad());
    std::ostringstream text;
    layer->pretty_print(text);
    EXPECT_EQ(text.str(), core::join("weft::nn::ParallelEmbedding(num_embeddings=10, "
                                     "embedding_dim=7, ranks=",
                                     group.size(), ")"));
  });
}

TEST(ParallelEmbedding, RefusesBadIdsAndSizesOnAllRanks) {
  on_ranks(
      [](const Group& group) {
        ParallelEmbedding layer(kTableRows, kTableWidth, group);
        const auto lookup = [&](const at::Tensor& ids) {
          return error_text([&] { layer->forward(ids); });
        };
        EXPECT_EQ(
            lookup(at::tensor({0, 10, 3}, at::kLong)),
            "ShapeError: nn.ParallelEmbedding: id 10, expected 0 to 9; use the tokenizer that "
            "belongs to this table");
        EXPECT_EQ(
            lookup(at::tensor({0, -1, 12}, at::kLong)),
            "ShapeError: nn.ParallelEmbedding: id -1, expected 0 to 9; use the tokenizer that "
            "belongs to this table");
        EXPECT_EQ(lookup(at::tensor({0.0, 1.0})),
                  "ShapeError: nn.ParallelEmbedding: ids of dtype Double, expected int64 or int32");
        EXPECT_EQ(layer->forward(at::empty({2, 0}, at::kLong)).sizes(),
                  (std::vector<int64_t>{2, 0, kTableWidth}));
        EXPECT_EQ(
            error_text([&] { ParallelEmbedding(kTableRows, 2, group); }),
            "ConfigError: nn.ParallelEmbedding: embedding_dim: 2 units of 1 cannot be cut over "
            "3 ranks; use 1 to 2 ranks");
        EXPECT_EQ(error_text([&] { ParallelEmbedding(0, kTableWidth, group); }),
                  "ShapeError: nn.ParallelEmbedding: num_embeddings 0, expected at least 1");
      },
      {3});
}

TEST(ParallelEmbedding, RefusesOptionsThatExcludeEachOther) {
  ParallelEmbeddingOptions options;
  const auto made = [&] {
    return error_text([&] { ParallelEmbedding(kTableRows, kTableWidth, Group(), options); });
  };
  options.padding_idx = 10;
  EXPECT_EQ(made(), "ConfigError: nn.ParallelEmbedding: padding_idx 10, expected -10 to 9");
  options.padding_idx = -11;
  EXPECT_EQ(made(), "ConfigError: nn.ParallelEmbedding: padding_idx -11, expected -10 to 9");
  options.padding_idx.reset();
  options.max_norm = -1;
  EXPECT_EQ(made(), "ConfigError: nn.ParallelEmbedding: max_norm -1, expected 0 or more");
  options.max_norm = 1;
  options.norm_type = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(made(), "ConfigError: nn.ParallelEmbedding: norm_type nan, expected a number");
  options.norm_type = 2;
  options.sparse = options.scale_grad_by_freq = true;
  EXPECT_EQ(made(),
            "ConfigError: nn.ParallelEmbedding: sparse gradients cannot be scaled by "
            "frequency; use one of the two");
  EXPECT_EQ(error_text([] {
              ParallelEmbedding(at::zeros({3, 2}), 7, Group(), ParallelEmbeddingOptions{}, true);
            }),
            "ShapeError: nn.ParallelEmbedding: shard [3, 2], expected [num_embeddings, 7]");
}

}  // namespace
}  // namespace weft::nn
