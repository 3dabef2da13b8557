#include "weft/nn/attention/latent_attention.h"

#include <cmath>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;
using testing::error_text;

constexpr int64_t kLatentBatch = 2, kHeads = 3, kPositions = 6;
constexpr LatentHeads kSizes = {.rank = 7, .rope_dim = 4, .plain_dim = 5, .value_dim = 8};

struct Inputs {
  at::Tensor queries, kept, weight;
};

// Of the last `tokens` positions.
Inputs inputs(int64_t tokens) {
  return {seeded({kLatentBatch, tokens, kHeads, kSizes.key_dim()}, 1),
          seeded({kLatentBatch, kPositions, kSizes.kept_dim()}, 2),
          seeded({kHeads * (kSizes.plain_dim + kSizes.value_dim), kSizes.rank}, 3)};
}

at::Tensor expanded(const Inputs& in, const LatentHeads& sizes = kSizes) {
  const at::Tensor latents = in.kept.narrow(-1, 0, sizes.rank);
  return expanded_latent_attention(in.queries, at::matmul(latents, in.weight.t()),
                                   in.kept.narrow(-1, sizes.rank, sizes.rope_dim), sizes);
}

// One query of one head after the other.
at::Tensor naive_latent_attention(const Inputs& in, double scale) {
  const int64_t tokens = in.queries.size(1), each = kSizes.plain_dim + kSizes.value_dim;
  at::Tensor out = at::zeros({kLatentBatch, tokens, kHeads, kSizes.value_dim}, at::kDouble);
  for (int64_t b = 0; b < kLatentBatch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const at::Tensor seen = in.kept[b].narrow(0, 0, kPositions - tokens + t + 1);
      const at::Tensor latents = seen.narrow(1, 0, kSizes.rank);
      for (int64_t n = 0; n < kHeads; ++n) {
        const at::Tensor own = in.weight.narrow(0, n * each, each);
        const at::Tensor made = at::matmul(latents, own.t());
        const at::Tensor keys = at::cat(
            {made.narrow(1, 0, kSizes.plain_dim), seen.narrow(1, kSizes.rank, kSizes.rope_dim)}, 1);
        const at::Tensor shares = at::softmax(at::mv(keys, in.queries[b][t][n]) * scale, 0);
        out[b][t][n].copy_(at::mv(made.narrow(1, kSizes.plain_dim, kSizes.value_dim).t(), shares));
      }
    }
  }
  return out.flatten(2);
}

TEST(LatentAttention, BothWaysGiveTheFormula) {
  for (const int64_t tokens : {1, 3, 6}) {
    const Inputs in = inputs(tokens);
    const std::string what = core::join(tokens, " tokens");
    const at::Tensor expected = naive_latent_attention(in, 1 / std::sqrt(9.0));
    expect_close(expanded(in), expected, what, 1e-12);
    expect_close(absorbed_latent_attention(in.queries, in.kept, in.weight, kSizes), expected, what,
                 1e-12);
    LatentHeads scaled = kSizes;
    scaled.scale = 0.7;
    expect_close(expanded(in, scaled), naive_latent_attention(in, 0.7), what + ", scaled", 1e-12);
    expect_close(absorbed_latent_attention(in.queries, in.kept, in.weight, scaled),
                 naive_latent_attention(in, 0.7), what + ", scaled", 1e-12);
  }
}

TEST(LatentAttention, BothWaysGiveTheSameGradients) {
  Inputs a = inputs(6);
  for (at::Tensor* part : {&a.queries, &a.kept, &a.weight}) *part = leaf(*part);
  Inputs b = {leaf(a.queries), leaf(a.kept), leaf(a.weight)};
  const at::Tensor wanted = seeded({kLatentBatch, 6, kHeads * kSizes.value_dim}, 4);
  (expanded(a) * wanted).sum().backward();
  (absorbed_latent_attention(b.queries, b.kept, b.weight, kSizes) * wanted).sum().backward();
  expect_close(b.queries.grad(), a.queries.grad(), "queries", 1e-12);
  expect_close(b.kept.grad(), a.kept.grad(), "latents", 1e-12);
  expect_close(b.weight.grad(), a.weight.grad(), "weight", 1e-12);
}

TEST(LatentAttention, SeesItsOwnDocumentAlone) {
  const Inputs in = inputs(6);
  const at::Tensor documents = at::tensor({0, 0, 1, 1, 1, 1}, at::kLong).expand({kLatentBatch, 6});
  const at::Tensor kv = at::matmul(in.kept.narrow(-1, 0, kSizes.rank), in.weight.t());
  const at::Tensor turned = in.kept.narrow(-1, kSizes.rank, kSizes.rope_dim);
  const at::Tensor got =
      expanded_latent_attention(in.queries, kv, turned, kSizes, documents.contiguous());
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 2}, {2, 4}}) {
    const at::Tensor alone =
        expanded_latent_attention(in.queries.narrow(1, first, count), kv.narrow(1, first, count),
                                  turned.narrow(1, first, count), kSizes);
    expect_close(got.narrow(1, first, count), alone, "document", 1e-12);
  }
}

TEST(LatentAttention, NamesSizesThatDoNotFit) {
  const Inputs in = inputs(1);
  EXPECT_EQ(error_text([&] {
              absorbed_latent_attention(in.queries.narrow(-1, 0, 8), in.kept, in.weight, kSizes);
            }),
            "ShapeError: nn.absorbed_latent_attention: queries [2, 1, 3, 8], expected [B, T, "
            "heads, 9]");
  EXPECT_EQ(error_text([&] {
              absorbed_latent_attention(in.queries, in.kept, in.weight.narrow(0, 0, 38), kSizes);
            }),
            "ShapeError: nn.absorbed_latent_attention: latents [2, 6, 11] with a weight [38, 7], "
            "expected [B, S, 11] and [39, 7]");
  EXPECT_EQ(error_text([&] { expanded_latent_attention(in.queries, in.kept, in.kept, kSizes); }),
            "ShapeError: nn.expanded_latent_attention: keys and values [2, 6, 11] with turned keys "
            "[2, 6, 11], expected [B, S, 39] and [B, S, 4]");
}

}  // namespace
}  // namespace weft::nn
