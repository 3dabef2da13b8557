#include "tests/dist/oracle.h"

#include <gtest/gtest.h>

namespace weft::test {

at::Tensor input_of(int rank, at::IntArrayRef shape, at::ScalarType dtype, bool exact) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(rank) + 17);
  if (dtype == at::kBool) return at::randint(0, 2, shape, generator, at::kLong).to(dtype);
  if (exact || c10::isIntegralType(dtype, false)) {
    const int64_t least = dtype == at::kByte ? 0 : -4;
    return at::randint(least, 5, shape, generator, at::kLong).to(dtype);
  }
  return at::randn(shape, generator, at::kDouble).to(dtype);
}

std::vector<at::Tensor> inputs_of(int ranks, at::IntArrayRef shape, at::ScalarType dtype,
                                  bool exact) {
  std::vector<at::Tensor> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(input_of(r, shape, dtype, exact));
  return inputs;
}

at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOp op) {
  const at::ScalarType dtype = inputs[0].scalar_type();
  const bool half = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto widened = [&](const at::Tensor& x) { return half ? x.to(at::kFloat) : x; };
  at::Tensor total = widened(inputs[0]).clone();
  for (size_t r = 1; r < inputs.size(); ++r) {
    const at::Tensor next = widened(inputs[r]);
    if (op == ReduceOp::kMin) {
      total = at::minimum(total, next);
    } else if (op == ReduceOp::kMax) {
      total = at::maximum(total, next);
    } else if (op == ReduceOp::kProduct) {
      total = at::mul(total, next).to(total.scalar_type());
    } else {
      total = at::add(total, next);
    }
  }
  if (op == ReduceOp::kAverage) total = total.div(static_cast<int64_t>(inputs.size()));
  return total.to(dtype);
}

bool is_reduction(const at::Tensor& result, const std::vector<at::Tensor>& inputs, ReduceOp op) {
  const at::ScalarType dtype = inputs[0].scalar_type();
  if (result.scalar_type() != dtype || result.sizes() != inputs[0].sizes()) return false;
  const bool rounds = op != ReduceOp::kMin && op != ReduceOp::kMax;
  if (!c10::isFloatingType(dtype) || !rounds) return at::equal(result, reduced(inputs, op));
  std::vector<at::Tensor> exact;
  at::Tensor size = at::zeros(inputs[0].sizes(), at::kDouble);
  for (const at::Tensor& x : inputs) {
    exact.push_back(x.to(at::kDouble));
    size += exact.back().abs();
  }
  const at::Tensor value = reduced(exact, op);
  // What each of a few operations may have been off by before the last rounding.
  const double unit = dtype == at::kDouble ? 0x1p-52 : 0x1p-23;
  const auto steps = static_cast<double>(inputs.size());
  const at::Tensor slack = (op == ReduceOp::kProduct ? value.abs() : size) * (unit * steps);
  return at::logical_and(result >= (value - slack).to(dtype), result <= (value + slack).to(dtype))
      .all()
      .item<bool>();
}

at::Tensor strided_copy(const at::Tensor& x) {
  auto shape = x.sizes().vec();
  shape.push_back(3);
  const at::Tensor roomy = at::zeros(shape, x.options());
  at::Tensor view = roomy.select(-1, 1);
  view.copy_(x);
  return view;
}

TEST(Oracle, RoundsASumOfHalvesOnce) {
  const std::vector<at::Tensor> inputs = {at::full({1}, 2048.0, at::kHalf),
                                          at::full({1}, 1.0, at::kHalf),
                                          at::full({1}, 1.0, at::kHalf)};
  EXPECT_EQ(reduced(inputs, ReduceOp::kSum).item<float>(), 2050.0F);
}

TEST(Oracle, KnowsOneRoundingOfASumFromTwo) {
  // 2048 + 1 is 2048 in half precision, so that two roundings lose both ones.
  const std::vector<at::Tensor> inputs = {at::full({1}, 2048.0, at::kHalf),
                                          at::full({1}, 1.0, at::kHalf),
                                          at::full({1}, 1.0, at::kHalf)};
  EXPECT_TRUE(is_reduction(at::full({1}, 2050.0, at::kHalf), inputs, ReduceOp::kSum));
  EXPECT_FALSE(is_reduction(at::full({1}, 2048.0, at::kHalf), inputs, ReduceOp::kSum));
  EXPECT_FALSE(is_reduction(at::full({1}, 2050.0, at::kFloat), inputs, ReduceOp::kSum));
}

}  // namespace weft::test
