#include "weft/serve/engine/step_pace.h"

#include <algorithm>
#include <limits>

namespace weft::serve {
namespace {

// Of what was known, beside one new time.
constexpr double kKept = 0.5;

void take_time(double& known, double seconds) {
  known = known == 0 ? seconds : kKept * known + (1 - kKept) * seconds;
}

}  // namespace

void StepPace::note(const StepPlan& plan, const StepTimes& times) {
  int64_t num_last = 0, layer_tokens = 0;
  for (const StepPart& part : plan.parts) {
    if (part.reads_last()) {
      ++num_last;
      continue;
    }
    const int64_t layers = part.is_whole() ? num_layers_ - part.first_layer : part.num_layers;
    layer_tokens += layers * std::ssize(part.tokens);
  }
  if (num_last > 0) take_time(last_seconds_, times.last_tokens);
  if (layer_tokens > 0) take_time(layer_seconds_, times.pieces / static_cast<double>(layer_tokens));
}

int64_t StepPace::layer_tokens(int64_t num_last, int64_t num_pieces) const {
  if (num_layers_ == 1 || max_slowdown_ == 0 || num_last == 0 || num_pieces == 0) {
    return std::numeric_limits<int64_t>::max();
  }
  if (layer_seconds_ == 0) return 1;
  // Where more sequences wait for their first token than for their next, steps are for them.
  const double share =
      std::max(1.0, static_cast<double>(num_pieces) / static_cast<double>(num_last));
  const double tokens = (max_slowdown_ - 1) * share * last_seconds_ / layer_seconds_;
  return std::max<int64_t>(static_cast<int64_t>(tokens), 1);
}

}  // namespace weft::serve
