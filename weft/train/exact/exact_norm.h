#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace weft::train {

/// The sum of squares of numbers in any order and in any parts, always with the same bits: each
/// square is cut at places that depend on the largest number alone, so that what is above and
/// between the cuts adds up in float64 without rounding. What is below the last cut is dropped:
/// less than 2^-44 of the largest square for each number. Source: Demmel and Nguyen 2013, "Fast
/// Reproducible Floating-Point Summation".
class ExactSquares {
 public:
  /// For at most so many numbers, of which none is larger than `largest`, in all parts together.
  ExactSquares(double largest, int64_t count);

  void add(std::span<const float> values);
  /// Sums of which those of all parts may be added up in any order.
  const std::array<double, 3>& sums() const { return sums_; }
  std::array<double, 3>& sums() { return sums_; }
  /// Of the numbers of all parts.
  double total() const { return (sums_[2] + sums_[1]) + sums_[0]; }

 private:
  std::array<double, 3> cuts_ = {};
  std::array<double, 3> sums_ = {};
};

/// The largest size of a number; infinity if one is not finite.
double largest_size(std::span<const float> values);

}  // namespace weft::train
