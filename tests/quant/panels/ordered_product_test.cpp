#include "weft/quant/panels/ordered_product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/quant/kernels/panel_select.h"

namespace weft::quant {
namespace {

using testing::error_text;
using weft::test::expect_close;
using weft::test::seeded;

constexpr int64_t kOut = 80, kIn = 2048, kUnit = 256;

// Some columns of a matrix in panels; all cuts are of one whole.
using Columns = std::function<PanelMatrix(const shard::Range& columns)>;

struct Case {
  std::string name;
  Columns columns;
  at::Tensor values;
};

Case affine_case(const std::string& name, const AffineTensor& w, int64_t bits) {
  const Columns columns = [=](const shard::Range& range) {
    PanelMatrix made = to_panels(slice_affine(w, {0, kOut}, range), bits);
    made.is_exact = true;
    return made;
  };
  return {name, columns, dequantize(w, at::kDouble)};
}

Case plain_case(const std::string& name, at::ScalarType type) {
  const at::Tensor w = seeded({kOut, kIn}, 3, at::kFloat).to(type);
  const Columns columns = [=](const shard::Range& range) {
    PanelMatrix made =
        to_panels(w.narrow(1, range.start, range.length).contiguous(), HalfPanels::kPlain);
    made.is_exact = true;
    return made;
  };
  return {name, columns, w.to(at::kDouble)};
}

std::vector<Case> cases() {
  const at::Tensor w = seeded({kOut, kIn}, 3, at::kFloat);
  AffineTensor two_levels = quantize_affine(w, 6, 16, at::kHalf);
  two_levels.scales = at::randint(-128, 128, {kOut, kIn / 256, 16}).to(at::kFloat).flatten(1) / 512;
  two_levels.offsets = two_levels.scales * -32;
  return {affine_case("4 bits", quantize_affine(w, 4, 32, at::kHalf), 16),
          affine_case("4 bits by 8", quantize_affine(w, 4, 64, at::kHalf), 8),
          affine_case("8 bits", quantize_affine(w, 8, 32, at::kHalf), 16),
          affine_case("6 bits of two levels", two_levels, 16),
          plain_case("bfloat16", at::kBFloat16),
          plain_case("float16", at::kHalf),
          plain_case("float32", at::kFloat)};
}

// The product as ranks of the layout get it, each from its own columns alone.
at::Tensor product_over_ranks(const kernels::PanelKernel& kernel, const Case& weight,
                              const shard::SumOrder& order, const shard::Layout& layout,
                              const at::Tensor& x) {
  const int64_t rows = x.size(0), slots = order.plan(layout, 0).slots;
  at::Tensor nodes = at::full({layout.num_ranks() * slots, rows, kOut}, NAN);
  shard::SumPlan plan;
  for (int64_t rank = 0; rank < layout.num_ranks(); ++rank) {
    plan = order.plan(layout, rank);
    const shard::Range own = layout.of(rank).front();
    const PanelMatrix w = weight.columns(own);
    const at::Tensor own_x = x.narrow(1, own.start, own.length).contiguous();
    PanelInputs inputs(PanelInputs::Wants::of(w));
    inputs.take(kernel, {rows, own.length, rows}, [&](int64_t row, float* /*room*/) {
      return own_x.const_data_ptr<float>() + row * own.length;
    });
    const OrderedProduct product = {
        PanelView(w), {nodes[rank * slots].mutable_data_ptr<float>(), kOut, rows * kOut}};
    multiply_ordered(kernel, inputs, std::span(&product, 1), plan);
  }
  for (const shard::SumStep& step : plan.joins) nodes[step.to].add_(nodes[step.from]);
  return nodes[plan.result].clone();
}

TEST(OrderedProduct, HasTheSameBitsForAnyNumberOfRanks) {
  std::vector<shard::Layout> layouts;
  for (const int64_t n : {2, 4, 8, 1, 3, 5, 6, 7}) {
    layouts.push_back(shard::make_layout({0, {}, kUnit}, kIn, n, "w"));
  }
  const shard::SumOrder order(layouts);
  for (const auto* kernel : kernels::runnable_panel_kernels()) {
    for (const Case& weight : cases()) {
      // One token, some, and more than lie in the cache together.
      for (const int64_t rows : {1, 5, 43}) {
        const at::Tensor x = seeded({rows, kIn}, 7, at::kFloat);
        const std::string name = core::join(kernel->name, ", ", weight.name, ", ", rows, " rows, ");
        const at::Tensor one = product_over_ranks(*kernel, weight, order, layouts[3], x);
        expect_close(one, at::matmul(x.to(at::kDouble), weight.values.t()), name,
                     weight.name == "4 bits by 8" ? 2e-2 : 2e-4);
        for (const shard::Layout& layout : layouts) {
          EXPECT_TRUE(at::equal(product_over_ranks(*kernel, weight, order, layout, x), one))
              << name << layout.num_ranks() << " ranks";
        }
        // A row's bits are those that it has alone.
        const at::Tensor last = product_over_ranks(*kernel, weight, order, layouts[0],
                                                   x.narrow(0, rows - 1, 1).contiguous());
        EXPECT_TRUE(at::equal(last[0], one[rows - 1])) << name << "the last alone";
      }
    }
  }
}

TEST(OrderedProduct, RefusesRowsThatAreNotExact) {
  const Case weight = plain_case("float32", at::kFloat);
  PanelMatrix w = weight.columns({0, kIn});
  const kernels::PanelKernel& kernel = *kernels::runnable_panel_kernels().front();
  const at::Tensor x = at::ones({20, kIn}), y = at::empty({20, kOut});
  const auto product = [&](const shard::SumPlan& plan) {
    PanelInputs inputs(PanelInputs::Wants::of(w));
    inputs.take(kernel, {20, kIn, 20}, [&](int64_t row, float* /*room*/) {
      return x.const_data_ptr<float>() + row * kIn;
    });
    const OrderedProduct product = {PanelView(w), {y.mutable_data_ptr<float>(), kOut, 20 * kOut}};
    multiply_ordered(kernel, inputs, std::span(&product, 1), plan);
  };
  shard::SumPlan plan;
  plan.pieces = {{0, 16}};
  plan.nodes = {0};
  EXPECT_EQ(error_text([&] { product(plan); }),
            "ShapeError: quant.multiply_ordered: a piece of 16 columns from 0, expected whole "
            "blocks of 32");
  w.is_exact = false;
  EXPECT_EQ(error_text([&] { product(plan); }),
            "ShapeError: quant.multiply_ordered: rows of 2048, expected 2048 in the form that an "
            "exact matrix wants");
}

}  // namespace
}  // namespace weft::quant
