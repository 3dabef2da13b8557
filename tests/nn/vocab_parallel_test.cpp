#include "weft/nn/vocab_parallel.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/dense_linear.h"
#include "weft/nn/quantized_linear.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::piece;
using test::seeded;
using testing::error_text;

constexpr int64_t kVocab = 10, kWidth = 4;

shard::Range vocab_of(const Group& group) {
  return shard::part(kVocab, group.size(), group.rank());
}

// Both edges of every shard, and one token twice.
at::Tensor every_token() {
  return at::tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 3}, at::kLong).view({2, 6});
}

TEST(VocabParallelEmbedding, EqualsTheWholeForwardAndBackward) {
  on_ranks([](const Group& group) {
    const at::Tensor table = leaf(seeded({kVocab, kWidth}, 1)), grad = seeded({2, 6, kWidth}, 2);
    const at::Tensor x = at::embedding(table, every_token());
    x.backward(grad);
    const auto inner =
        std::make_shared<DenseLinearImpl>(piece(table, 0, group), at::Tensor(), true);
    VocabParallelEmbedding embedding(inner, vocab_of(group), group);
    const at::Tensor x_rank = embedding->forward(every_token());
    expect_close(x_rank, x, "forward", 0);
    x_rank.backward(grad);
    expect_close(inner->weight.grad(), piece(table.grad(), 0, group), "gradient of the table");
  });
}

TEST(VocabParallelEmbedding, LooksUpInAQuantizedTable) {
  on_ranks([](const Group& group) {
    const auto table =
        quant::quantize_affine(seeded({kVocab, 32}, 1, at::kFloat), 4, 16, at::kFloat);
    const shard::Range vocab = vocab_of(group);
    VocabParallelEmbedding embedding(
        std::make_shared<QuantizedLinearImpl>(quant::slice_affine(table, vocab, {0, 32})), vocab,
        group);
    expect_close(embedding->forward(every_token()),
                 at::embedding(quant::dequantize(table, at::kFloat), every_token()), "forward",
                 1e-6);
  });
}

TEST(VocabParallelHead, EqualsTheWholeTiedOrNot) {
  on_ranks([](const Group& group) {
    for (const bool is_tied : {false, true}) {
      const at::Tensor table = leaf(seeded({kVocab, kWidth}, 1));
      const at::Tensor head_whole = is_tied ? table : leaf(seeded({kVocab, kWidth}, 2));
      const at::Tensor grad = seeded({2, 6, kVocab}, 3);
      const at::Tensor y = at::linear(at::tanh(at::embedding(table, every_token())), head_whole);
      y.backward(grad);

      const auto inner =
          std::make_shared<DenseLinearImpl>(piece(table, 0, group), at::Tensor(), true);
      const auto head_inner = is_tied ? inner
                                      : std::make_shared<DenseLinearImpl>(
                                            piece(head_whole, 0, group), at::Tensor(), true);
      VocabParallelEmbedding embedding(inner, vocab_of(group), group);
      VocabParallelHead head(head_inner, vocab_of(group), kVocab, group);
      const at::Tensor logits_BTv = head->forward(at::tanh(embedding->forward(every_token())));
      expect_close(logits_BTv, piece(y, -1, group), "this rank's logits");
      const at::Tensor logits_BTV = head->gather(logits_BTv);
      expect_close(logits_BTV, y, "all logits");
      logits_BTV.backward(grad);
      expect_close(inner->weight.grad(), piece(table.grad(), 0, group), "gradient of the table");
      expect_close(head_inner->weight.grad(), piece(head_whole.grad(), 0, group), "of the head");
    }
  });
}

TEST(VocabParallel, RefusesATableOfAnotherSize) {
  const auto inner = std::make_shared<DenseLinearImpl>(at::zeros({5, kWidth}));
  EXPECT_EQ(error_text([&] {
              VocabParallelEmbedding(inner, shard::Range{0, 4}, Group());
            }),
            "ShapeError: nn.VocabParallelEmbedding: table of 5 rows, expected 4");
  EXPECT_EQ(error_text([&] {
              VocabParallelHead(inner, shard::Range{0, 4}, kVocab, Group());
            }),
            "ShapeError: nn.VocabParallelHead: weight of 5 rows, expected 4");
}

}  // namespace
}  // namespace weft::nn
