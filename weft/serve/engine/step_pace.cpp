#include "weft/serve/engine/step_pace.h"

#include <algorithm>
#include <limits>

namespace weft::serve {
namespace {

// Of what was known, beside one new time.
constexpr double kKept = 0.5;

// A step that stood still says little of the next ones.
constexpr double kMostGrowth = 2;

void take_time(double& known, double seconds) {
  const double taken = std::min(seconds, kMostGrowth * known);
  known = known == 0 ? seconds : kKept * known + (1 - kKept) * taken;
}

}  // namespace

int64_t StepPace::counted_tokens(int64_t tokens) {
  constexpr int64_t kLeast = 32;
  return std::max(tokens, kLeast);
}

void StepPace::note(const StepPlan& plan, const StepTimes& times) {
  int64_t num_last = 0, layer_tokens = 0;
  for (const StepPart& part : plan.parts) {
    if (part.reads_last()) {
      ++num_last;
      continue;
    }
    layer_tokens += part.layers_of(num_layers_) * counted_tokens(std::ssize(part.tokens));
  }
  if (num_last > 0) take_time(last_seconds_, times.last_tokens);
  if (layer_tokens > 0) take_time(layer_seconds_, times.pieces / static_cast<double>(layer_tokens));
}

int64_t StepPace::layer_tokens(int64_t num_last, int64_t num_pieces) const {
  constexpr auto kNoLimit = std::numeric_limits<int64_t>::max();
  if (!is_limited() || num_last == 0 || num_pieces == 0) return kNoLimit;
  if (layer_seconds_ == 0) return 1;
  // Where more sequences wait for their first token than for their next, steps are for them: with
  // few sequences that go on, a step gives little for its time.
  const double waiting =
      std::max(1.0, static_cast<double>(num_pieces) / static_cast<double>(num_last));
  const double seconds = (max_slowdown_ - 1) * waiting * waiting * last_seconds_;
  const double tokens = seconds / layer_seconds_;
  constexpr double kMost = 1e15;
  return static_cast<int64_t>(std::clamp(tokens, 1.0, kMost));
}

}  // namespace weft::serve
