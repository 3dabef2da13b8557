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

/// Whether a matrix, by its name, lies between hidden layers: no embedding table and no head.
inline bool is_hidden_matrix(const std::string& name) {
  return name.find("embed") == std::string::npos && name.find("lm_head") == std::string::npos;
}

/// Hidden matrices move by their momentum made orthogonal, all else by AdamW (Jordan et al. 2024,
/// https://kellerjordan.github.io/posts/muon). Momentum as in torch.optim.Muon.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  /// Of the Newton-Schulz iteration.
  int64_t num_iterations = 5;
  /// Updates as large as AdamW's are, 0.2 sqrt(max(rows, columns)), so that both have one learning
  /// rate (arXiv:2502.16982); else Jordan's sqrt(max(1, rows / columns)).
  bool matches_adamw = true;
  AdamwOptions adamw;
  /// Which parameters of two dims are hidden matrices.
  std::function<bool(const std::string& name)> rule = is_hidden_matrix;
};

/// Which optimizer, and its numbers.
using OptimizerOptions =
    std::variant<AdamwOptions, SgdOptions, LionOptions, AdafactorOptions, MuonOptions>;

/// Whether a parameter, by its name and number of dims, loses weight.
using DecayRule = std::function<bool(const std::string& name, int64_t num_dims)>;

/// The usual rule: matrices do, vectors (norms, biases) don't.
inline bool decays_matrices(const std::string&, int64_t num_dims) { return num_dims >= 2; }

}  // namespace weft::train
