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

/// Dropout that does not depend on the mesh: an element is dropped by its index in the whole
/// activation, the seed, the layer and the step. Ranks that hold the same element agree without
/// communication, others are independent, and a resumed run goes on as it would have. Source of the
/// generator: Salmon et al. 2011 (philox.h); dropout: Srivastava et al. 2014.
class DropoutImpl : public torch::nn::Module {
 public:
  /// `layer` tells apart the dropouts of a model. Throws ConfigError unless 0 <= p < 1.
  DropoutImpl(double p, uint64_t seed, uint64_t layer);
  /// x: [..., d] floating. Returns x with elements dropped at rate p and the others divided by
  /// 1 - p; x itself if p is 0 or in evaluation. Throws ShapeError unless d is what the place says.
  /// Not collective.
  at::Tensor forward(const at::Tensor& x, const ActivationPlace& place) const;
  double p() const { return p_; }

 private:
  double p_;
  uint64_t seed_;
  uint64_t layer_;
};
TORCH_MODULE(Dropout);

}  // namespace weft::nn
