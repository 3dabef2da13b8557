#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/nn/attention/rope_frequencies.h"

namespace weft::nn {

/// What a Rope is made of.
struct RopeOptions {
  /// Features of a head that are rotated, its first ones; even. The others pass through.
  int64_t dim = 0;
  double base = 10'000;
  /// The most positions that may be asked for.
  int64_t max_positions = 0;
  RopeScaling scaling = {};
  /// Pairs are (2 i, 2 i + 1) instead.
  bool turns_neighbours = false;
  /// Numbers [dim / 2] that the frequencies are divided by (a GGUF's rope_freqs); undefined: none.
  at::Tensor divisors = {};
};

/// Cosines and sines for some positions, to rotate the queries and keys of all layers of a pass.
class RopeAngles {
 public:
  /// cos_T1H, sin_T1H: [T, 1, dim] float32, or [B, T, 1, dim] for rows with other positions.
  /// turns_neighbours: they turn features 2 i and 2 i + 1 together.
  RopeAngles(at::Tensor cos_T1H, at::Tensor sin_T1H, bool turns_neighbours = false);
  /// Angles of `tokens` positions that turn nothing: for layers without rope.
  static RopeAngles none(int64_t tokens);
  /// x_BTnH at these positions. Returns the rotated, same shape and dtype.
  /// Throws ShapeError for another number of tokens or heads that are too small.
  at::Tensor apply(const at::Tensor& x_BTnH) const;
  /// Whether apply takes x_BTnH.
  bool fits(const at::Tensor& x_BTnH) const;
  const at::Tensor& cos() const { return cos_T1H_; }
  const at::Tensor& sin() const { return sin_T1H_; }
  bool turns_neighbours() const { return turns_neighbours_; }

 private:
  at::Tensor cos_T1H_;
  at::Tensor sin_T1H_;
  bool turns_neighbours_;
};

/// Rotary position embedding. Pairs are (i, i + dim/2) of a head, as Hugging Face's Llama has them,
/// unless the options say otherwise.
/// Source: Su et al. 2021, arXiv:2104.09864.
///
/// With RopeType::kDynamic and kLongRope the frequencies depend on how long the sequence is after
/// the pass that asks, as in transformers: beyond the original positions, keys that a cache holds
/// were rotated by the frequencies of *their* pass and stay so. Reading a long text at once and in
/// pieces then gives different numbers, each equal to transformers' with the same pieces.
class Rope {
 public:
  /// Throws ConfigError for a dim that is not positive and even, a base that is not positive and
  /// finite, no positions, or numbers of the scaling that make no frequencies.
  explicit Rope(RopeOptions options);
  /// Of the default type.
  Rope(int64_t dim, double base, int64_t max_positions);

  /// For positions start … start + tokens - 1. Throws ShapeError beyond max_positions.
  RopeAngles angles(int64_t start, int64_t tokens) const;
  /// For rows that each have positions of their own: positions_BT, int64. Throws ShapeError beyond
  /// max_positions or for another type.
  RopeAngles angles(const at::Tensor& positions_BT) const;
  /// x_BTnH at positions start … start + T - 1: angles(start, T).apply(x_BTnH).
  at::Tensor apply(const at::Tensor& x_BTnH, int64_t start) const;
  int64_t max_positions() const { return options_.max_positions; }
  bool turns_neighbours() const { return options_.turns_neighbours; }

 private:
  RopeFrequencies frequencies(int64_t length) const;
  RopeAngles angles_at(const at::Tensor& positions, int64_t length) const;

  RopeOptions options_;
  /// For all lengths at which they are the same.
  RopeFrequencies short_;
};

}  // namespace weft::nn
