// Blocks of GGUF out of numbers: what is lost is no more than what ggml loses.
#include "weft/quant/quantizers/gguf_quantize.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "tests/core/error_text.h"
#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/formats/gguf_blocks.h"
#include "weft/quant/quantizers/feedback.h"

namespace weft::quant {
namespace {

using core::Dtype;
using core::ShapeError;
using test::Golden;
using test::message_of;

at::Tensor values_of(Dtype type, const at::Tensor& blocks, int64_t out, int64_t in) {
  const std::span bytes(static_cast<const std::byte*>(blocks.const_data_ptr()), blocks.nbytes());
  return dequantize(from_gguf_blocks(type, bytes, out, in), at::kFloat);
}

class BlockQuantizer : public ::testing::TestWithParam<Dtype> {
 protected:
  Dtype type() const { return GetParam(); }
  at::Tensor rounded(const at::Tensor& w, const at::Tensor& importance = {}) const {
    return values_of(type(), quantize_to_blocks(type(), w, importance), w.size(0), w.size(1));
  }
};

// Rows of a model and of a heavy tail, without and with importances.
TEST_P(BlockQuantizer, LosesNoMoreThanGgml) {
  constexpr int64_t kRows = 16, kColumns = 768;
  Golden file("block_errors.bin");
  const at::Tensor rows = file.take({kRows, kColumns}, at::kFloat);
  const at::Tensor importance = file.take({kColumns}, at::kFloat);
  const auto types = quantizable_block_types();
  const at::Tensor ggml = file.take({static_cast<int64_t>(types.size()), 2}, at::kDouble);
  ASSERT_TRUE(file.is_at_end());
  const auto place = std::ranges::find(types, type()) - types.begin();
  const at::Tensor squares = rows.to(at::kDouble).square();
  const at::Tensor weights = (squares + squares.mean(1, true)).sqrt();
  for (const bool is_weighted : {false, true}) {
    const at::Tensor counts = is_weighted ? importance : at::ones({kColumns});
    const at::Tensor errors = rounded(rows, is_weighted ? importance : at::Tensor()) - rows;
    const auto lost = (errors.to(at::kDouble).square() * weights * counts).sum().item<double>();
    EXPECT_LE(lost, ggml[place][is_weighted ? 1 : 0].item<double>() * (1 + 1e-6)) << is_weighted;
    EXPECT_GT(lost, 0) << is_weighted;
  }
}

TEST_P(BlockQuantizer, KeepsWhatItsReaderGives) {
  at::manual_seed(3);
  const at::Tensor once = rounded(at::randn({4, 512}));
  const at::Tensor twice = rounded(once);
  const double moved = (twice - once).norm().item<double>() / once.norm().item<double>();
  EXPECT_LT(moved, 0.02);
}

TEST_P(BlockQuantizer, ZerosStayZeros) {
  EXPECT_TRUE(at::equal(rounded(at::zeros({2, 256})), at::zeros({2, 256})));
}

// What comes later in a row makes good what was lost before, if its inputs say the same.
TEST_P(BlockQuantizer, FeedbackLosesLessOfTheProduct) {
  if (type() == Dtype::kQ8_0) GTEST_SKIP() << "is nearly exact, so nothing is left to make good";
  at::manual_seed(5);
  const at::Tensor mix = at::randn({512, 512}) / 22.6 + at::randn({1, 512});
  const at::Tensor x = at::randn({2048, 512}).matmul(mix);
  const at::Tensor w = at::randn({32, 512});
  const at::Tensor products = x.t().matmul(x) / 2048;
  const auto blocks = quantize_with_feedback(type(), w, feedback_factor(products, 0.01));
  const auto lost = [&](const at::Tensor& values) {
    return x.matmul((values - w).t()).square().mean().item<double>();
  };
  const double plain = lost(rounded(w, products.diagonal().contiguous()));
  EXPECT_LT(lost(values_of(type(), blocks, 32, 512)), 0.6 * plain);
}

INSTANTIATE_TEST_SUITE_P(Types, BlockQuantizer, ::testing::ValuesIn(quantizable_block_types()),
                         [](const auto& info) { return std::string(core::info(info.param).name); });

TEST(GgufQuantize, BytesOfEightBitsAreThePackages) {
  Golden file("block_errors.bin"), bytes("gguf_bytes_Q8_0.bin");
  const at::Tensor rows = file.take({16, 768}, at::kFloat);
  const at::Tensor blocks = quantize_to_blocks(Dtype::kQ8_0, rows, {});
  EXPECT_TRUE(at::equal(blocks, bytes.take(blocks.sizes(), at::kByte)));
}

TEST(GgufQuantize, BytesDontDependOnThreads) {
  at::manual_seed(4);
  const at::Tensor w = at::randn({40, 256});
  const at::Tensor many = quantize_to_blocks(Dtype::kQ4K, w, {});
  const at::Tensor factor = feedback_factor(at::eye(256), 0.01);
  const at::Tensor many_fed = quantize_with_feedback(Dtype::kQ4K, w, factor);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(quantize_to_blocks(Dtype::kQ4K, w, {}), many));
  EXPECT_TRUE(at::equal(quantize_with_feedback(Dtype::kQ4K, w, factor), many_fed));
  at::set_num_threads(threads);
}

TEST(GgufQuantize, RefusesWhatItCannotRound) {
  const auto error = [](const at::Tensor& w, const at::Tensor& importance) {
    return message_of<ShapeError>([&] { quantize_to_blocks(Dtype::kQ4K, w, importance); });
  };
  const at::Tensor w = at::ones({1, 256});
  EXPECT_EQ(error(at::ones({1, 64}), {}),
            "quant.quantize_to_blocks: group size, expected a divisor of the 64 columns, got 256; "
            "use another group size");
  EXPECT_EQ(
      error(w * std::numeric_limits<float>::infinity(), {}),
      "quant.quantize_to_blocks: w[0, 0], expected a finite number, got inf; look for the step "
      "that made it");
  EXPECT_EQ(error(w, at::ones({2})),
            "quant.quantize_to_blocks: importance, expected float32 [256], got Float [2]");
  EXPECT_EQ(error(w, -at::ones({256})),
            "quant.quantize_to_blocks: importance, expected finite numbers from 0");
  EXPECT_EQ(error(w * 1e30, {}),
            "quant.quantize_to_blocks: w, expected numbers whose Q4_K scales float16 holds, got "
            "larger ones; use another type");
  EXPECT_EQ(message_of<ShapeError>([&] {
              quantize_with_feedback(Dtype::kQ4K, w, at::ones({2, 2}));
            }),
            "quant.quantize_with_feedback: factor, expected [256, 256], got [2, 2]");
  EXPECT_EQ(message_of<ShapeError>([] {
              feedback_factor(at::ones({2, 3}), 0.01);
            }),
            "quant.feedback_factor: products, expected floating [in, in]");
}

}  // namespace
}  // namespace weft::quant
