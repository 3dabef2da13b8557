#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "weft/dist/group.h"

/// Which matrix gets how many bits, so that all take no more than they may and little is lost.
namespace weft::models {

/// About how many rows of a matrix are rounded to see what it loses: every so many-th of all.
inline constexpr int64_t kBudgetRows = 96;

/// What each matrix loses in each form, float64 [matrices, forms]. measure(m, losses) adds to those
/// of matrix m, which begin at 0. The ranks of `group` measure some matrices each; collective, the
/// same on all. Throws what `measure` throws, on all ranks.
at::Tensor measured_losses(int64_t matrices, int64_t forms,
                           const std::function<void(size_t m, double* losses)>& measure,
                           const dist::Group& group);

/// One form that a matrix can have.
struct BitChoice {
  /// Of all its numbers together.
  double bits = 0;
  double loss = 0;
  /// Which of the caller's forms it is.
  size_t form = 0;
};

/// The form of each matrix among its `choices`, of which there is one at least. All start with the
/// fewest bits, then those are raised of which a bit saves most, until all take `limit` bits for
/// each of `numbers` numbers, with `taken`, the bits of whatever else there is. Throws ConfigError
/// for a limit that even the smallest forms exceed, naming the least number of bits for each
/// number.
std::vector<size_t> forms_within(double limit, double taken, double numbers,
                                 std::vector<std::vector<BitChoice>> choices);

}  // namespace weft::models
