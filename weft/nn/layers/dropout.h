#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "weft/shard/split.h"

namespace weft::nn {

/// Which part of a step's whole activation [rows, D] a rank holds, rows being tokens in the step's
/// global order.
struct ActivationPlace {
  /// The step, e.g. the optimizer's.
  uint64_t step = 0;
  /// The first row that this rank holds; the others follow it.
  int64_t first_row = 0;
  /// D, and what this rank holds of it, one range after another; D = 0: all of it.
  int64_t whole_size = 0;
  std::vector<shard::Range> ranges = {};
};

/// While one lives, the layers that this thread runs are at this place: for those that drop and are
/// called with their input alone (LoraLinear). They nest.
class PlaceScope {
 public:
  explicit PlaceScope(const ActivationPlace& place);
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;
  ~PlaceScope();

  /// The innermost's place; null without one.
  static const ActivationPlace* current();

 private:
  const ActivationPlace* outer_;
};

/// What is dropped: elements at rate p, drawn by seed and layer, which tells apart the dropouts of
/// a model.
struct DropoutDraw {
  double p = 0;
  uint64_t seed = 0;
  uint64_t layer = 0;
};

/// Dropout that does not depend on the mesh: an element is dropped by its index in the whole
/// activation, the seed, the layer and the step. Ranks that hold the same element agree without
/// communication, others are independent, and a resumed run continues as it would have. x: [..., d]
/// floating. Returns x with elements dropped at rate p and the others divided by 1 - p; x itself if
/// p is 0. Nothing is kept for backward, which draws again. Throws ShapeError unless d is what the
/// place says, ConfigError unless 0 <= p < 1 and layer < 2^30. Not collective. Source of the
/// generator: Salmon et al. 2011 (philox.h); dropout: Srivastava et al. 2014.
at::Tensor dropped(const at::Tensor& x, const DropoutDraw& draw, const ActivationPlace& place);

/// The same as a module, which drops in training mode alone.
class DropoutImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError unless 0 <= p < 1.
  DropoutImpl(double p, uint64_t seed, uint64_t layer);
  /// As dropped; x itself in evaluation.
  at::Tensor forward(const at::Tensor& x, const ActivationPlace& place) const;
  double p() const { return draw_.p; }

 private:
  DropoutDraw draw_;
};
TORCH_MODULE(Dropout);

}  // namespace weft::nn
