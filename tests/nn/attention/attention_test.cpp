#include "weft/nn/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::seeded;

constexpr int64_t kBatch = 2, kDim = 6;

// One query after the other, as the formula is written.
at::Tensor naive_attention(const at::Tensor& q_BnTH, const at::Tensor& k_BkSH,
                           const at::Tensor& v_BkSH, const std::vector<int64_t>& kv_of_head,
                           int64_t window = 0) {
  const int64_t heads = q_BnTH.size(1), tokens = q_BnTH.size(2);
  const int64_t before = k_BkSH.size(2) - tokens;
  const at::Tensor y_BTnH = at::zeros({kBatch, tokens, heads, kDim}, at::kDouble);
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t last = before + t;
        const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, last + 1 - window);
        const at::Tensor k_SH = k_BkSH[b][kv_of_head[n]].narrow(0, first, last + 1 - first);
        const at::Tensor v_SH = v_BkSH[b][kv_of_head[n]].narrow(0, first, last + 1 - first);
        const at::Tensor scores_S = at::mv(k_SH, q_BnTH[b][n][t]) / std::sqrt(double{kDim});
        y_BTnH[b][t][n].copy_(at::mv(v_SH.t(), at::softmax(scores_S, 0)));
      }
    }
  }
  return y_BTnH.flatten(2);
}

TEST(GroupedQueryAttention, EqualsTheFormulaOneQueryAfterTheOther) {
  const std::vector<std::vector<int64_t>> maps = {{0, 1}, {0, 0, 1, 1}, {0, 0, 1}, {0, 1, 1, 1}};
  for (const auto& map : maps) {
    for (const auto& [tokens, positions] :
         std::vector<std::pair<int64_t, int64_t>>{{5, 5}, {3, 8}, {1, 8}, {1, 1}, {7, 8}}) {
      const auto heads = static_cast<int64_t>(map.size());
      const at::Tensor q = seeded({kBatch, heads, tokens, kDim}, 1);
      const at::Tensor k = seeded({kBatch, 2, positions, kDim}, 2);
      const at::Tensor v = seeded({kBatch, 2, positions, kDim}, 3);
      const std::string what =
          core::join("T ", tokens, ", S ", positions, ", map ", core::list_text(map));
      expect_close(grouped_query_attention(q, k, v, {map}), naive_attention(q, k, v, map), what,
                   1e-12);
      expect_close(
          grouped_query_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), {map}),
          naive_attention(q, k, v, map), what + ", float32", 1e-5);
    }
  }
}

TEST(GroupedQueryAttention, SeesAWindowOfPositionsBehindItself) {
  for (const std::vector<int64_t>& map : {std::vector<int64_t>{0, 0, 1, 1}, {0, 0, 1}}) {
    for (const auto& [tokens, positions] :
         std::vector<std::pair<int64_t, int64_t>>{{8, 8}, {3, 8}, {1, 8}, {1, 1}, {7, 8}}) {
      for (const int64_t window : {1, 2, 3, 7, 8, 9}) {
        const at::Tensor q = seeded({kBatch, static_cast<int64_t>(map.size()), tokens, kDim}, 1);
        const at::Tensor k = seeded({kBatch, 2, positions, kDim}, 2);
        const at::Tensor v = seeded({kBatch, 2, positions, kDim}, 3);
        expect_close(grouped_query_attention(q, k, v, {map, window}),
                     naive_attention(q, k, v, map, window),
                     core::join("T ", tokens, ", S ", positions, ", window ", window), 1e-12);
      }
    }
  }
}

TEST(GroupedQueryAttention, ScalesScoresAsItIsTold) {
  const std::vector<int64_t> map = {0, 0, 1, 1};
  const at::Tensor k = seeded({kBatch, 2, 8, kDim}, 2), v = seeded({kBatch, 2, 8, kDim}, 3);
  for (const int64_t tokens : {1, 3, 8}) {
    const at::Tensor q = seeded({kBatch, 4, tokens, kDim}, 1);
    // The naive formula divides by the root of the head dim.
    const at::Tensor expected = naive_attention(q * 0.3 * std::sqrt(double{kDim}), k, v, map);
    expect_close(grouped_query_attention(q, k, v, {map, 0, 0.3}), expected,
                 core::join(tokens, " tokens"));
  }
}

TEST(GroupedQueryAttention, ReadsViewsOfALargerCache) {
  const at::Tensor cache = seeded({kBatch, 2, 20, kDim}, 2);
  const at::Tensor k = cache.narrow(2, 0, 8), v = cache.narrow(2, 8, 8);
  const at::Tensor q = seeded({kBatch, 3, 4, kDim}, 1).transpose(1, 2);
  expect_close(grouped_query_attention(q, k, v, {{0, 0, 1, 1}}),
               naive_attention(q, k, v, {0, 0, 1, 1}), "strided");
}

TEST(GroupedQueryAttention, StaysWithinDocuments) {
  const std::vector<int64_t> map = {0, 0, 1, 1};
  const at::Tensor q = seeded({kBatch, 4, 9, kDim}, 1), k = seeded({kBatch, 2, 9, kDim}, 2);
  const at::Tensor v = seeded({kBatch, 2, 9, kDim}, 3);
  const at::Tensor documents =
      at::tensor({4, 4, 4, 4, 7, 7, 7, 9, 9}, at::kLong).expand({kBatch, 9});
  for (const int64_t window : {0, 2}) {
    std::vector<at::Tensor> parts;
    int64_t start = 0;
    for (const int64_t length : {4, 3, 2}) {
      parts.push_back(naive_attention(q.narrow(2, start, length), k.narrow(2, start, length),
                                      v.narrow(2, start, length), map, window));
      start += length;
    }
    const at::Tensor y = grouped_query_attention(q, k, v, {map, window}, documents);
    expect_close(y, at::cat(parts, 1), core::join("window ", window));
    expect_close(grouped_query_attention(q.narrow(2, 8, 1), k, v, {map, window}, documents),
                 y.narrow(1, 8, 1), "last token");
  }
}

TEST(GroupedQueryAttention, RefusesShapesThatDoNotFit) {
  const at::Tensor k = at::zeros({1, 2, 3, 4});
  EXPECT_EQ(
      testing::error_text([&] {
        grouped_query_attention(at::zeros({1, 2, 4, 4}), k, k, {{0, 1}});
      }),
      "ShapeError: nn.grouped_query_attention: q [1, 2, 4, 4] and k [1, 2, 3, 4] with 2 heads "
      "mapped");
  EXPECT_EQ(
      testing::error_text([&] {
        grouped_query_attention(at::zeros({1, 2, 1, 4}), k, k, {{0}});
      }),
      "ShapeError: nn.grouped_query_attention: q [1, 2, 1, 4] and k [1, 2, 3, 4] with 1 heads "
      "mapped");
  EXPECT_EQ(testing::error_text([&] {
              grouped_query_attention(at::zeros({1, 2, 1, 4}), k, k, {{0, 1}, -1});
            }),
            "ShapeError: nn.grouped_query_attention: window -1, expected at least 1, or 0 for all "
            "positions");
  EXPECT_EQ(testing::error_text([&] {
              grouped_query_attention(at::zeros({1, 2, 1, 4}), k, k, {{0, 1}}, at::zeros({1, 2}));
            }),
            "ShapeError: nn.grouped_query_attention: documents [1, 2], expected int64 [1, 3]");
}

}  // namespace
}  // namespace weft::nn
