#include "weft/dist/ordered_sum.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

// So few numbers of each slot stay in the first level cache while they are added.
constexpr int64_t kRun = 1024;
// Numbers of each slot that the ranks exchange at once where memory is the caller's.
constexpr int64_t kMostExchanged = 1 << 18;

void add(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

OrderedSum::OrderedSum(Group group, shard::SumPlan plan)
    : group_(std::move(group)), plan_(std::move(plan)) {}

float* OrderedSum::room(int64_t count) {
  if (!own_.defined() || own_.size(1) != count) {
    const int64_t ranks = group_.size(), own = plan_.slots * count;
    const int64_t needed = ranks == 1 ? own : (1 + ranks) * own;
    if (!memory_.defined() || memory_.size(0) < needed) memory_ = at::empty({needed}, at::kFloat);
    own_ = memory_.narrow(0, 0, own).view({plan_.slots, count});
    all_ =
        ranks == 1 ? own_ : memory_.narrow(0, own, ranks * own).view({ranks * plan_.slots, count});
  }
  return own_.mutable_data_ptr<float>();
}

float* OrderedSum::sum(int64_t count) {
  core::check<core::ShapeError>(own_.defined() && own_.size(1) == count,
                                "dist.OrderedSum.sum: ", count, " numbers, expected the ",
                                own_.defined() ? own_.size(1) : 0, " that there is room for");
  if (group_.size() > 1) group_.all_gather_into(all_, own_);
  auto* const all = all_.mutable_data_ptr<float>();
  at::parallel_for(0, (count + kRun - 1) / kRun, 8, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const int64_t first = run * kRun, length = std::min(kRun, count - first);
      for (const shard::SumStep& step : plan_.joins) {
        add(all + step.from * count + first, all + step.to * count + first, length);
      }
    }
  });
  return all + plan_.result * count;
}

void OrderedSum::sum_in_place(float* nodes, int64_t count) {
  const auto num_nodes = static_cast<int64_t>(plan_.nodes.size());
  if (is_alone()) return;
  for (int64_t first = 0; first < count; first += kMostExchanged) {
    const int64_t run = std::min(kMostExchanged, count - first);
    float* const own = room(run);
    for (int64_t node = 0; node < num_nodes; ++node) {
      std::copy_n(nodes + node * count + first, run, own + node * run);
    }
    std::copy_n(sum(run), run, nodes + first);
  }
}

}  // namespace weft::dist
