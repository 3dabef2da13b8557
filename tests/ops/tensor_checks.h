#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/run_ranks.h"
#include "weft/shard/split.h"

namespace weft::test {

/// Normal numbers that depend on the seed alone, so that every rank can build the whole.
inline at::Tensor seeded(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kDouble) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed + 1000);
  return at::randn(shape, generator, at::kDouble).to(dtype);
}

/// A copy that collects a gradient.
inline at::Tensor leaf(const at::Tensor& x) { return x.detach().clone().requires_grad_(true); }

/// Fails unless shapes agree and the largest difference is at most `tolerance` of the largest
/// expected value (or of 1).
inline void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what,
                         double tolerance = 1e-12) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  const at::Tensor wanted = expected.detach().to(at::kDouble);
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  const double error = (got.detach().to(at::kDouble) - wanted).abs().max().item<double>();
  EXPECT_LE(error, tolerance * scale) << what;
}

/// This rank's balanced piece of the whole along `dim`, with memory of its own.
inline at::Tensor piece(const at::Tensor& whole, int64_t dim, const dist::Group& group) {
  const shard::Range range = shard::part(whole.size(dim), group.size(), group.rank());
  return whole.detach().narrow(dim, range.start, range.length).clone(at::MemoryFormat::Contiguous);
}

/// Sum of seeded(shape, first_seed + rank) over the ranks.
inline at::Tensor seeded_sum(at::IntArrayRef shape, uint64_t first_seed, int64_t ranks) {
  at::Tensor sum = at::zeros(shape, at::kDouble);
  for (int64_t rank = 0; rank < ranks; ++rank) sum += seeded(shape, first_seed + rank);
  return sum;
}

/// Runs `body` with the group of all ranks on 1, 2, 3 and 4 processes.
inline void on_ranks(const std::function<void(const dist::Group&)>& body,
                     const std::vector<int>& numbers = {1, 2, 3, 4}) {
  for (const int n : numbers) {
    run_ranks(n, [&](dist::World& world) { body(world.group()); });
  }
}

}  // namespace weft::test
