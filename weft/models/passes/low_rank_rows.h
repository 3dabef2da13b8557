#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/models/passes/float_rows.h"
#include "weft/nn/adapters/adapted_linear.h"

namespace weft::models {

/// What low-rank adapters add to the products of a fused pass, each row by the adapter of its
/// sequence, in float32 beside the product itself: r * (in + out) further numbers are read for a
/// linear and row. A row's sum has the same bits whatever other rows a pass has.
class LowRankRows {
 public:
  using Adapted = nn::AdaptedLinearImpl;

  /// Keeps the linear's adapters, if it has some; null: it has none.
  const Adapted* keep(const std::shared_ptr<nn::LinearLike>& linear);
  bool has_adapters() const { return !kept_.empty(); }

  /// A pass of `tokens` rows of each of `batch` sequences begins; nn::AdapterScope says which
  /// adapter each uses. Throws ConfigError where it names other sequences.
  void begin(int64_t batch, int64_t tokens);
  /// Whether a sequence of the pass has an adapter in any linear. Else the rest does nothing.
  bool is_used() const { return is_used_; }

  /// The next linears read rows of `in` numbers, which take_input gets before add. Not for several
  /// threads, as add.
  void begin_inputs(int64_t rows, int64_t in);
  /// Returns `numbers`, the row that the product reads. For several rows at once.
  const float* take_input(int64_t row, const float* numbers) const;
  /// Adds what the adapters make of the inputs to y, whose rows are `stride` apart.
  void add(const Adapted* linear, float* y, int64_t stride);

 private:
  int64_t number_of(int64_t row) const { return numbers_[static_cast<size_t>(row / tokens_)]; }

  std::vector<std::shared_ptr<Adapted>> kept_;
  /// By sequence.
  std::vector<int64_t> numbers_;
  int64_t tokens_ = 1;
  bool is_used_ = false;
  int64_t rows_ = 0, in_ = 0;
  /// [rows, in], and [rows, r] of them times A.
  FloatRows inputs_, low_;
};

}  // namespace weft::models
