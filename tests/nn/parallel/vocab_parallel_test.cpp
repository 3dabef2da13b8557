#include "weft/nn/parallel/vocab_parallel.h"

#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include <cmath>
#include <sstream>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::piece;
using test::seeded;
using testing::error_text;

constexpr int64_t kVocab = 10, kTableColumns = 4;

shard::Range vocab_of(const Group& group) {
  return shard::part(kVocab, group.size(), group.rank());
}

// Both edges of every shard, and one token twice.
at::Tensor every_token() {
  return at::tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 3}, at::kLong).view({2, 6});
}

TEST(VocabParallelEmbedding, EqualsTheWholeForwardAndBackward) {
  on_ranks([](const Group& group) {
    const at::Tensor table = leaf(seeded({kVocab, kTableColumns}, 1)),
                     grad = seeded({2, 6, kTableColumns}, 2);
    const at::Tensor x = at::embedding(table, every_token());
    x.backward(grad);
    const auto inner =
        std::make_shared<DenseLinearImpl>(piece(table, 0, group), at::Tensor(), true);
    VocabParallelEmbedding embedding(inner, kVocab, group);
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
        std::make_shared<QuantizedLinearImpl>(quant::slice_affine(table, vocab, {0, 32})), kVocab,
        group);
    expect_close(embedding->forward(every_token()),
                 at::embedding(quant::dequantize(table, at::kFloat), every_token()), "forward",
                 1e-6);
  });
}

TEST(VocabParallelHead, EqualsTheWholeTiedOrNot) {
  on_ranks([](const Group& group) {
    for (const bool is_tied : {false, true}) {
      const at::Tensor table = leaf(seeded({kVocab, kTableColumns}, 1));
      const at::Tensor head_whole = is_tied ? table : leaf(seeded({kVocab, kTableColumns}, 2));
      const at::Tensor grad = seeded({2, 6, kVocab}, 3);
      const at::Tensor y = at::linear(at::tanh(at::embedding(table, every_token())), head_whole);
      y.backward(grad);

      const auto inner =
          std::make_shared<DenseLinearImpl>(piece(table, 0, group), at::Tensor(), true);
      const auto head_inner = is_tied ? inner
                                      : std::make_shared<DenseLinearImpl>(
                                            piece(head_whole, 0, group), at::Tensor(), true);
      VocabParallelEmbedding embedding(inner, kVocab, group);
      VocabParallelHead head(head_inner, kVocab, group);
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

// Each rank looks up its own tokens alone, but the factor A is one on all ranks.
TEST(VocabParallelEmbedding, TrainsItsAdapterLikeTheWhole) {
  on_ranks([](const Group& group) {
    const at::Tensor table = seeded({kVocab, kTableColumns}, 1), b = seeded({kVocab, 2}, 2);
    const at::Tensor grad = seeded({2, 6, kTableColumns}, 3);
    const auto adapted = [&](const Group& over) {
      VocabParallelEmbedding embedding(
          std::make_shared<DenseLinearImpl>(piece(table, 0, over), at::Tensor(), true), kVocab,
          over);
      apply_lora(*embedding, {""}, {2, 4, 3});
      embedding->to(at::kDouble);
      const at::NoGradGuard no_grad;
      embedding->named_parameters()["inner.lora_b"].copy_(piece(b, 0, over));
      return embedding;
    };
    VocabParallelEmbedding whole = adapted(Group()), cut = adapted(group);
    const at::Tensor expected = whole->forward(every_token()), x = cut->forward(every_token());
    expect_close(x, expected, "forward", 1e-12);
    expected.backward(grad);
    x.backward(grad);
    const auto grad_of = [](const VocabParallelEmbedding& layer, const char* name) {
      return layer->named_parameters()[name].grad();
    };
    expect_close(grad_of(cut, "inner.lora_a"), grad_of(whole, "inner.lora_a"), "A", 1e-12);
    expect_close(grad_of(cut, "inner.lora_b"), piece(grad_of(whole, "inner.lora_b"), 0, group), "B",
                 1e-12);
  });
}

// Few values, so that several are alike.
TEST(VocabParallelHead, FindsTheLikeliestAndTheDrawnWithoutTheWhole) {
  on_ranks([](const Group& group) {
    at::Tensor whole_BTV = seeded({3, 5, kVocab}, 1).mul(2).round();
    whole_BTV.select(0, 2).select(0, 4).fill_(-INFINITY);
    VocabParallelHead head(
        std::make_shared<DenseLinearImpl>(piece(seeded({kVocab, kTableColumns}, 2), 0, group),
                                          at::Tensor(), true),
        kVocab, group);
    const at::Tensor expected = whole_BTV.argmax(-1).flatten();
    const std::vector<Largest> found = head->likeliest(piece(whole_BTV, -1, group));
    ASSERT_EQ(found.size(), 15U);
    for (int64_t row = 0; row < 15; ++row) {
      const Largest& here = found[static_cast<size_t>(row)];
      EXPECT_EQ(here.place, expected[row].item<int64_t>()) << row;
      EXPECT_EQ(here.value, whole_BTV.view({15, kVocab})[row].max().item<double>()) << row;
    }
    // More than the smallest part of the vocabulary has.
    constexpr int64_t kCount = kVocab - 2;
    const auto lists = head->likeliest(piece(whole_BTV, -1, group), kCount);
    ASSERT_EQ(std::ssize(lists), 15 * kCount);
    const auto [values, places] = whole_BTV.view({15, kVocab}).sort(true, -1, true);
    for (int64_t i = 0; i < 15 * kCount; ++i) {
      const Largest& each = lists[static_cast<size_t>(i)];
      EXPECT_EQ(each.value, values[i / kCount][i % kCount].item<double>()) << i;
      if (std::isinf(each.value)) continue;
      EXPECT_EQ(each.place, places[i / kCount][i % kCount].item<int64_t>()) << i;
    }
    std::vector<GumbelDraw> draws;
    for (uint64_t row = 0; row < 15; ++row) draws.push_back({row / 4, row, 0.5 + row / 10.0});
    const auto drawn = head->drawn(piece(whole_BTV, -1, group), draws);
    const at::Tensor floats_BTV = whole_BTV.to(at::kFloat);
    for (size_t row = 0; row < 15; ++row) {
      const std::span logits(floats_BTV.const_data_ptr<float>() + row * kVocab, kVocab);
      const Largest alone = largest_gumbel_sum(draws[row], logits, 0);
      EXPECT_EQ(drawn[row].place, alone.place) << row;
      EXPECT_EQ(drawn[row].value, alone.value) << row;
    }
    whole_BTV[1][1][kVocab - 2] = NAN;
    EXPECT_TRUE(std::isnan(head->likeliest(piece(whole_BTV, -1, group), 4)[6 * 4].value));
    EXPECT_TRUE(std::isnan(head->likeliest(piece(whole_BTV, -1, group))[6].value));
    EXPECT_TRUE(std::isnan(head->drawn(piece(whole_BTV, -1, group), draws)[6].value));
  });
}

TEST(VocabParallelEmbedding, EqualsTorchsEmbeddingMadeFromSizes) {
  on_ranks([](const Group& group) {
    for (const auto dtype : test::layer_dtypes()) {
      for (const auto padding :
           {std::optional<int64_t>(), std::optional<int64_t>(3), std::optional<int64_t>(-1)}) {
        VocabParallelEmbeddingOptions options;
        options.padding_idx = padding;
        options.dtype = dtype;
        VocabParallelEmbedding layer(kVocab, kTableColumns, group, options);
        torch::nn::Embedding whole(torch::nn::EmbeddingOptions(kVocab, kTableColumns)
                                       .padding_idx(padding)
                                       ._weight(layer->master_weight()));
        const at::Tensor grad = seeded({2, 6, kTableColumns}, 2, dtype);
        const at::Tensor x_whole = whole->forward(every_token());
        const at::Tensor x = layer->forward(every_token());
        expect_close(x, x_whole, "forward", 0);
        x_whole.backward(grad);
        x.backward(grad);
        expect_close(layer->named_parameters()["inner.weight"].grad(),
                     piece(whole->weight.grad(), 0, group), "gradient",
                     test::layer_tolerance(dtype));
      }
    }
  });
}

TEST(VocabParallelEmbedding, BeginsAlikeOnAnyNumberOfRanks) {
  on_ranks([](const Group& group) {
    VocabParallelEmbeddingOptions options;
    options.padding_idx = 7;
    options.init = Init::trunc_normal(0, 0.02, -0.04, 0.04);
    torch::manual_seed(3);
    const VocabParallelEmbedding alone(kVocab, kTableColumns, Group(), options);
    torch::manual_seed(3 + static_cast<uint64_t>(group.rank()));
    VocabParallelEmbedding layer(kVocab, kTableColumns, group, options);
    const at::Tensor first = layer->master_weight();
    EXPECT_TRUE(at::equal(first, alone->master_weight()));
    EXPECT_EQ(first[7].abs().max().item<double>(), 0) << "padding begins with zeros";
    EXPECT_GT(first.abs().max().item<double>(), 0.01);
    layer->reset_parameters();
    EXPECT_FALSE(at::equal(layer->master_weight(), first));
    EXPECT_EQ(layer->master_weight()[7].abs().max().item<double>(), 0);
    std::ostringstream text;
    layer->pretty_print(text);
    EXPECT_EQ(text.str(), core::join("weft::nn::VocabParallelEmbedding(vocab_size=10, "
                                     "embedding_dim=4, ranks=",
                                     group.size(), ")"));
  });
}

TEST(VocabParallelEmbedding, RefusesBadIdsAndSizesOnAllRanks) {
  on_ranks(
      [](const Group& group) {
        VocabParallelEmbedding layer(kVocab, kTableColumns, group);
        const auto lookup = [&](const at::Tensor& ids) {
          return error_text([&] { layer->forward(ids); });
        };
        const std::string where = "ShapeError: nn.VocabParallelEmbedding: ";
        EXPECT_EQ(lookup(at::tensor({0, 10}, at::kLong)),
                  where + "id 10, expected 0 to 9; use the tokenizer that belongs to this table");
        EXPECT_EQ(lookup(at::tensor({0, -1}, at::kLong)),
                  where + "id -1, expected 0 to 9; use the tokenizer that belongs to this table");
        if (group.size() == 1) return;
        EXPECT_EQ(error_text([&] { VocabParallelEmbedding(2, kTableColumns, group); }),
                  "ConfigError: nn.VocabParallelEmbedding: vocabulary: 2 units of 1 cannot be cut "
                  "over 3 ranks; use 1 to 2 ranks");
      },
      {1, 3});
}

TEST(VocabParallelEmbedding, RefusesOptionsThatDoNotFit) {
  VocabParallelEmbeddingOptions options;
  options.padding_idx = 10;
  EXPECT_EQ(error_text([&] { VocabParallelEmbedding(kVocab, kTableColumns, Group(), options); }),
            "ConfigError: nn.VocabParallelEmbedding: padding_idx 10, expected -10 to 9");
  EXPECT_EQ(error_text([&] { VocabParallelEmbedding(kVocab, 0, Group()); }),
            "ShapeError: nn.VocabParallelEmbedding: embedding_dim 0, expected at least 1");
  const auto table = quant::quantize_affine(seeded({kVocab, 32}, 1, at::kFloat), 4, 16, at::kFloat);
  VocabParallelEmbedding quantized(std::make_shared<QuantizedLinearImpl>(table), kVocab, Group());
  EXPECT_EQ(
      error_text([&] { quantized->reset_parameters(); }),
      "ConfigError: nn.VocabParallelEmbedding.reset_parameters: the table is not dense; reset "
      "it before it is quantized");
}

TEST(VocabParallel, RefusesATableOfAnotherSize) {
  const auto inner = std::make_shared<DenseLinearImpl>(at::zeros({5, kTableColumns}));
  EXPECT_EQ(error_text([&] { VocabParallelEmbedding(inner, kVocab, Group()); }),
            "ShapeError: nn.VocabParallelEmbedding: weight of 5 rows, expected this "
            "rank's 10 of 10");
  EXPECT_EQ(error_text([&] { VocabParallelHead(inner, kVocab, Group()); }),
            "ShapeError: nn.VocabParallelHead: weight of 5 rows, expected this rank's 10 of 10");
}

}  // namespace
}  // namespace weft::nn
