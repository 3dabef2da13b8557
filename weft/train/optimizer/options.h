#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace weft::train {

/// Adam with decoupled weight decay (arXiv:1711.05101).
struct AdamwOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
};

/// Stochastic gradient descent with momentum as PyTorch defines it, weight decay decoupled.
struct SgdOptions {
  double momentum = 0.9;
  bool nesterov = true;
};

/// The sign of a blend of gradient and momentum (arXiv:2302.06675).
struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
};

/// Second moments of matrices by their rows' and columns' means (arXiv:1804.04235), with the
/// schedule's learning rate instead of one of its own.
struct AdafactorOptions {
  /// The second moment's decay at step t is 1 - t^-decay_power.
  double decay_power = 0.8;
  /// Added to squares of gradients, and the least scale of a parameter.
  double epsilon_square = 1e-30;
  double epsilon_scale = 1e-3;
  /// Updates of a larger root mean square are scaled down to it.
  double clip_threshold = 1;
  /// Multiply the learning rate by the parameter's root mean square.
  bool scale_parameter = true;
  /// Momentum of the updates; none: no memory for it.
  std::optional<double> beta1;
};

/// Which optimizer, and its numbers.
using OptimizerOptions = std::variant<AdamwOptions, SgdOptions, LionOptions, AdafactorOptions>;

/// Whether a parameter, by its name and number of dims, loses weight.
using DecayRule = std::function<bool(const std::string& name, int64_t num_dims)>;

/// The usual rule: matrices do, vectors (norms, biases) don't.
inline bool decays_matrices(const std::string&, int64_t num_dims) { return num_dims >= 2; }

}  // namespace weft::train
