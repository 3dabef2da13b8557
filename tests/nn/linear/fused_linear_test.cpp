#include "weft/nn/linear/fused_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/nn/linear_cases.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/lora.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::seeded;

std::vector<at::Tensor> gradients(const std::vector<std::shared_ptr<LinearLike>>& linears) {
  std::vector<at::Tensor> found;
  for (const auto& linear : linears) {
    for (const at::Tensor& parameter : linear->parameters()) {
      if (parameter.requires_grad()) found.push_back(parameter.grad());
    }
  }
  return found;
}

at::Tensor weighted(const std::vector<at::Tensor>& outputs) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < outputs.size(); ++i) {
    sum = sum + (outputs[i] * seeded(outputs[i].sizes(), 20 + i)).sum();
  }
  return sum;
}

// Each rank has linears of its own, so that the reduction of the input's gradient counts.
void compare_shared(const Group& group, bool has_lora) {
  const auto make = [&] {
    const auto seed = static_cast<uint64_t>(10 * group.rank());
    std::vector<std::shared_ptr<LinearLike>> linears = {seeded_linear(4, 6, seed, true),
                                                        seeded_linear(3, 6, seed + 2, false),
                                                        seeded_linear(5, 6, seed + 4, true)};
    if (has_lora) {
      linears[1] = std::make_shared<LoraLinearImpl>(linears[1], leaf(seeded({2, 6}, 7)),
                                                    leaf(seeded({3, 2}, 8)), 0.5);
    }
    return linears;
  };
  const auto fused = make(), plain = make();
  const at::Tensor x = leaf(seeded({2, 3, 6}, 1)), y = leaf(seeded({2, 3, 6}, 1));
  weighted(linears_of_shared(fused, x, group)).backward();
  const at::Tensor shared = ops::mp_copy(y, group);
  std::vector<at::Tensor> outputs;
  for (const auto& linear : plain) outputs.push_back(linear->forward(shared));
  weighted(outputs).backward();
  expect_close(x.grad(), y.grad(), "input");
  const auto got = gradients(fused), expected = gradients(plain);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    expect_close(got[i], expected[i], core::join("parameter ", i));
}

TEST(LinearsOfShared, EqualLinearsBehindOneCopy) {
  test::on_ranks(
      [](const Group& group) {
        compare_shared(group, false);
        compare_shared(group, true);
      },
      {1, 3});
}

TEST(LinearsOfShared, NeedNoGradientOfTheInput) {
  const auto linear = seeded_linear(4, 6, 1, true);
  const at::Tensor x = seeded({2, 6}, 1);
  linears_of_shared({linear}, x, Group())[0].sum().backward();
  expect_close(linear->weight.grad(), x.sum(0).expand({4, 6}), "weight");
  EXPECT_FALSE(x.grad().defined());
}

TEST(ReducedLinear, EqualsALinearAndAReduction) {
  test::on_ranks(
      [](const Group& group) {
        const auto seed = static_cast<uint64_t>(10 * group.rank());
        const auto fused = seeded_linear(4, 6, seed, false),
                   plain = seeded_linear(4, 6, seed, false);
        const at::Tensor x = leaf(seeded({2, 3, 6}, seed)), y = leaf(seeded({2, 3, 6}, seed));
        const at::Tensor got = reduced_linear(*fused, x, group);
        const at::Tensor expected = ops::mp_reduce(plain->forward(y), group);
        expect_close(got, expected, "output");
        weighted({got}).backward();
        weighted({expected}).backward();
        expect_close(x.grad(), y.grad(), "input");
        expect_close(fused->weight.grad(), plain->weight.grad(), "weight");
      },
      {1, 3});
}

}  // namespace
}  // namespace weft::nn
