#include "weft/models/quantize/budget.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <queue>
#include <utility>

#include "weft/core/error.h"
#include "weft/dist/launch/run_together.h"

namespace weft::models {
namespace {

// The choices of one matrix on the lower hull of loss over bits: from each to the next a bit saves
// less than before.
std::vector<BitChoice> on_hull(std::vector<BitChoice> choices) {
  std::ranges::sort(choices, {}, [](const BitChoice& c) { return std::pair(c.bits, c.loss); });
  std::vector<BitChoice> hull;
  const auto saved_per_bit = [](const BitChoice& a, const BitChoice& b) {
    return (a.loss - b.loss) / (b.bits - a.bits);
  };
  for (const BitChoice& choice : choices) {
    if (!hull.empty() && choice.loss >= hull.back().loss) continue;
    while (hull.size() > 1 && saved_per_bit(hull[hull.size() - 2], hull.back()) <=
                                  saved_per_bit(hull.back(), choice)) {
      hull.pop_back();
    }
    hull.push_back(choice);
  }
  return hull;
}

// A step to the next choice of one matrix.
struct Step {
  double saved_per_bit = 0;
  size_t matrix = 0;
  bool operator<(const Step& other) const { return saved_per_bit < other.saved_per_bit; }
};

// Takes steps while the budget has room, the one that saves most first.
void raise_types(const std::vector<std::vector<BitChoice>>& hulls, double room,
                 std::vector<size_t>& at) {
  std::priority_queue<Step> steps;
  const auto push = [&](size_t m) {
    if (at[m] + 1 >= hulls[m].size()) return;
    const BitChoice& now = hulls[m][at[m]];
    const BitChoice& next = hulls[m][at[m] + 1];
    steps.push({(now.loss - next.loss) / (next.bits - now.bits), m});
  };
  for (size_t m = 0; m < hulls.size(); ++m) push(m);
  while (!steps.empty()) {
    const size_t m = steps.top().matrix;
    steps.pop();
    const double cost = hulls[m][at[m] + 1].bits - hulls[m][at[m]].bits;
    if (cost > room) continue;
    room -= cost;
    ++at[m];
    push(m);
  }
}

}  // namespace

at::Tensor measured_losses(int64_t matrices, int64_t forms,
                           const std::function<void(size_t m, double* losses)>& measure,
                           const dist::Group& group) {
  at::Tensor losses = at::zeros({matrices, forms}, at::kDouble);
  dist::run_together(group, [&] {
    for (int64_t m = group.rank(); m < matrices; m += group.size()) {
      measure(static_cast<size_t>(m), losses.mutable_data_ptr<double>() + m * forms);
    }
  });
  group.all_reduce(losses);
  return losses;
}

std::vector<size_t> forms_within(double limit, double taken, double numbers,
                                 std::vector<std::vector<BitChoice>> choices) {
  std::vector<std::vector<BitChoice>> hulls;
  for (std::vector<BitChoice>& each : choices) {
    hulls.push_back(on_hull(std::move(each)));
    taken += hulls.back().front().bits;
  }
  core::check<core::ConfigError>(taken <= limit * numbers, "models.quantize: ", limit,
                                 " bits per weight, expected at least ", taken / numbers,
                                 ", which the smallest types take");
  std::vector<size_t> at(hulls.size(), 0);
  raise_types(hulls, limit * numbers - taken, at);
  std::vector<size_t> forms;
  for (size_t m = 0; m < hulls.size(); ++m) forms.push_back(hulls[m][at[m]].form);
  return forms;
}

}  // namespace weft::models
