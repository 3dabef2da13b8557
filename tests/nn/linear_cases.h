#pragma once

#include <memory>
#include <string>

#include "tests/ops/tensor_checks.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/lora.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {

/// A whole layer, equal on all ranks and made anew by each call.
using MakeLinear = std::function<std::shared_ptr<LinearLike>()>;

inline MakeLinear dense_case(int64_t out, int64_t in, at::ScalarType dtype = at::kDouble) {
  return [=] {
    return std::make_shared<DenseLinearImpl>(test::seeded({out, in}, 1, dtype),
                                             test::seeded({out}, 2, dtype), true);
  };
}

/// A dense linear whose weight is seeded by `seed` and whose bias by the next.
inline std::shared_ptr<DenseLinearImpl> seeded_linear(int64_t out, int64_t in, uint64_t seed,
                                                      bool has_bias = false) {
  return std::make_shared<DenseLinearImpl>(
      test::seeded({out, in}, seed), has_bias ? test::seeded({out}, seed + 1) : at::Tensor(), true);
}

inline MakeLinear quantized_case(int64_t out, int64_t in, int64_t group_size, int64_t bits = 4) {
  return [=] {
    return std::make_shared<QuantizedLinearImpl>(
        quant::quantize_affine(test::seeded({out, in}, 1, at::kFloat), bits, group_size,
                               at::kFloat),
        test::seeded({out}, 2, at::kFloat));
  };
}

inline MakeLinear microscaled_case(int64_t out, int64_t in, quant::Mode mode) {
  return [=] {
    return std::make_shared<QuantizedLinearImpl>(
        quant::quantize_microscaled(test::seeded({out, in}, 1, at::kFloat), mode),
        test::seeded({out}, 2, at::kFloat));
  };
}

inline MakeLinear lora_case(const MakeLinear& base, at::ScalarType dtype) {
  return [=] {
    auto inner = base();
    const at::Tensor a = test::seeded({3, inner->in_features()}, 5, dtype);
    const at::Tensor b = test::seeded({inner->out_features(), 3}, 6, dtype);
    return std::make_shared<LoraLinearImpl>(std::move(inner), test::leaf(a), test::leaf(b), 0.5);
  };
}

/// This rank's part of an activation whose last dim is cut.
inline at::Tensor last_dim_part(const at::Tensor& x, const LinearCut& cut) {
  LinearCut last = cut;
  last.layout.dim = x.dim() - 1;
  return own_part(x, last);
}

/// Fails unless `part`'s parameters have the gradients of `whole`'s: gathered where they are cut,
/// equal where they are replicated.
inline void expect_gradients_of(const LinearLike& part, const LinearLike& whole,
                                const LinearCut& cut, double tolerance) {
  for (const auto& item : whole.named_parameters()) {
    const std::string& name = item.key();
    const at::Tensor expected = item.value().grad();
    if (name.ends_with("bias") && cut.kind == ShardKind::kShardedToAll) continue;
    const at::Tensor* found = part.named_parameters().find(name);
    ASSERT_NE(found, nullptr) << name;
    ASSERT_EQ(found->grad().defined(), expected.defined()) << name;
    if (!expected.defined()) continue;
    const bool by_rows = cut.kind == ShardKind::kAllToSharded;
    const bool is_replicated = name.ends_with(by_rows ? "lora_a" : "lora_b");
    const at::Tensor grad = is_replicated ? found->grad() : gather_whole(found->grad(), cut);
    test::expect_close(grad, expected, "gradient of " + name, tolerance);
  }
}

/// *Sharded equals whole*: output, input gradient and every parameter's.
inline void expect_sharded_equals_whole(const MakeLinear& make, Linear& sharded,
                                        double tolerance = 1e-12) {
  const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(sharded->layer());
  ASSERT_NE(parallel, nullptr);
  const LinearCut& cut = *parallel->cut();
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  const auto whole = make();
  const at::Tensor bias = whole->bias_or_undefined();
  const auto dtype = bias.scalar_type();
  const at::Tensor x = test::leaf(test::seeded({2, 3, whole->in_features()}, 3, dtype));
  const at::Tensor grad = test::seeded({2, 3, whole->out_features()}, 4, dtype);
  const at::Tensor y = whole->forward(x);
  y.backward(grad);

  const at::Tensor x_rank = test::leaf(by_rows ? x : last_dim_part(x, cut));
  const at::Tensor y_rank = sharded->forward(x_rank);
  test::expect_close(y_rank, by_rows ? last_dim_part(y, cut) : y, "forward", tolerance);
  y_rank.backward(by_rows ? last_dim_part(grad, cut) : grad);
  test::expect_close(x_rank.grad(), by_rows ? x.grad() : last_dim_part(x.grad(), cut),
                     "gradient of the input", tolerance);
  expect_gradients_of(*parallel->inner(), *whole, cut, tolerance);
  if (by_rows) return;
  const auto& row = dynamic_cast<const ShardedToAllLinearImpl&>(*parallel);
  ASSERT_EQ(row.bias.grad().defined(), bias.grad().defined());
  if (bias.grad().defined()) {
    test::expect_close(row.bias.grad(), bias.grad(), "gradient of the bias", tolerance);
  }
}

}  // namespace weft::nn
