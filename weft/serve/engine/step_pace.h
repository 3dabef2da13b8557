#pragma once

#include <cstdint>

#include "weft/serve/engine/step_plan.h"

namespace weft::serve {

/// How much of prompts a step reads beside other sequences' last tokens, so that these come at a
/// steady pace: by what the steps before took. It decides when something is read, never what it
/// gives.
class StepPace {
 public:
  /// `num_layers`: of the model, 1 where prompts can't be read by single layers. `max_slowdown`: a
  /// step with one prompt takes at most so many times as long as without; 0: no limit.
  StepPace(int64_t num_layers, double max_slowdown)
      : num_layers_(num_layers), max_slowdown_(max_slowdown) {}

  /// As how many a part's tokens count: few take as long as these, as weights are read for them.
  static int64_t counted_tokens(int64_t tokens);
  /// Whether there ever is a limit.
  bool is_limited() const { return num_layers_ > 1 && max_slowdown_ > 0; }
  /// Takes what a step took.
  void note(const StepPlan& plan, const StepTimes& times);
  /// Counted tokens of pieces, times the layers that they go through, of a step in which so many
  /// sequences read their last token and so many a piece, at least 1. Without either, no limit.
  int64_t layer_tokens(int64_t num_last, int64_t num_pieces) const;

 private:
  int64_t num_layers_;
  double max_slowdown_;
  /// Of a step's last tokens, and of a token of a piece in one layer; 0: not known yet.
  double last_seconds_ = 0;
  double layer_seconds_ = 0;
};

}  // namespace weft::serve
