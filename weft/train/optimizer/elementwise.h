#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/optimizer/optimizer.h"
#include "weft/train/optimizer/update.h"

namespace weft::train {

/// Slices that lie end to end in memory and lose the same weight: updated as one.
struct UpdateRun {
  at::Tensor master;
  at::Tensor gradient;
  /// As many as the optimizer has states; the others are undefined.
  std::array<at::Tensor, 2> states;
  double weight_decay = 0;
};

/// An optimizer in which no element knows of another, so that a parameter may be cut anywhere: any
/// cut gives the same bits. State lies in one buffer for each kind, in the order of the slices.
class ElementwiseOptimizer : public Optimizer {
 public:
  /// At most two states, by name.
  ElementwiseOptimizer(std::vector<OwnedSlice> slices, std::vector<std::string> state_names);

  void step(double learning_rate, double gradient_scale) final;
  /// The same by libtorch's operations, as on other devices than the CPU.
  void step_by_tensors(double learning_rate, double gradient_scale);
  std::vector<StateTensor> state() final;
  /// For tests: how many runs the slices make.
  const std::vector<UpdateRun>& runs() const { return runs_; }

 protected:
  /// The step's numbers, the same for all elements.
  virtual UpdateNumbers numbers(double learning_rate, double gradient_scale) const = 0;
  /// The update of elements on the CPU: one pass over memory.
  virtual UpdateFunction function() const = 0;
  /// The same by libtorch's operations, for other devices.
  virtual void update_tensors(const UpdateRun& run, const UpdateNumbers& numbers) const = 0;

 private:
  std::vector<UpdateNumbers> numbers_by_run(double learning_rate, double gradient_scale) const;
  void make_runs();
  void make_pieces();

  // Part of a run for one thread at a time.
  struct Piece {
    size_t run = 0;
    int64_t start = 0;
    int64_t length = 0;
  };

  std::vector<OwnedSlice> slices_;
  std::vector<std::string> state_names_;
  std::vector<at::Tensor> states_;
  std::vector<UpdateRun> runs_;
  std::vector<Piece> pieces_;
};

/// The functions that make_optimizer calls. Throw ConfigError for numbers out of range.
std::unique_ptr<ElementwiseOptimizer> make_adamw(const AdamwOptions& options,
                                                 std::vector<OwnedSlice> slices);
std::unique_ptr<ElementwiseOptimizer> make_sgd(const SgdOptions& options,
                                               std::vector<OwnedSlice> slices);
std::unique_ptr<ElementwiseOptimizer> make_lion(const LionOptions& options,
                                                std::vector<OwnedSlice> slices);

}  // namespace weft::train
