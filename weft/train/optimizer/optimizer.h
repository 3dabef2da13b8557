#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/train/optimizer/options.h"
#include "weft/train/slice.h"

namespace weft::train {

/// Elements of a parameter that this rank updates.
struct OwnedSlice {
  Slice slice;
  /// Float32 of one dim, as long as the slice: views of the owner's flat buffers, which stay where
  /// they are. CPU or CUDA, all the same. The owner puts the step's gradient there before a step.
  at::Tensor master;
  at::Tensor gradient;
  /// What the master loses per step, times the learning rate: decay_of.
  double weight_decay = 0;
};

/// Values that a checkpoint keeps of a parameter: the master, or what an optimizer remembers.
struct StateTensor {
  /// "master", "exp_avg", …
  std::string state;
  Slice slice;
  /// Float32 of one dim: one value for each of the slice's elements, or, with `is_whole`, values of
  /// the whole parameter that every owner of a part of it has (Adafactor's sums of rows).
  at::Tensor values;
  bool is_whole = false;
};

/// Updates masters in place. State is made at the start and starts as zeros.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update with `gradient * gradient_scale` (the coefficient of clipping) as gradient. The
  /// gradients are left as they are. Collective over the group if the optimizer says so.
  virtual void step(double learning_rate, double gradient_scale) = 0;
  /// Masters and state, to be saved or to be filled: views of what the next step uses.
  virtual std::vector<StateTensor> state() = 0;
  /// Updates so far, which a checkpoint keeps, too: the corrections of AdamW count them.
  int64_t num_steps() const { return num_steps_; }
  void set_num_steps(int64_t num_steps) { num_steps_ = num_steps; }

 protected:
  Optimizer() = default;
  int64_t num_steps_ = 0;
};

/// An optimizer of this rank's slices. `group` has all ranks that own parts of the same parameters
/// (those of the axes replica, data and model): each element of a whole is owned there once, or
/// once per rank of the model axis that holds it. AdamW, SGD and Lion never use it. Adafactor's and
/// Muon's making and steps are collective over it, and on the group's ranks any parts of any
/// parameters may lie. Throws ShapeError for tensors that don't fit their slices, ConfigError for
/// options out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<OwnedSlice> slices, const dist::Group& group);

}  // namespace weft::train
