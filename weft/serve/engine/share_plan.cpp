#include "weft/serve/engine/share_plan.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "weft/core/error.h"

namespace weft::serve {
namespace {

// Numbers that come before a plan's parts, and before a part's tokens.
constexpr int64_t kPlanHead = 2;
constexpr int64_t kPartHead = 4;

std::vector<int64_t> encode(const StepPlan& plan) {
  std::vector<int64_t> numbers = {plan.ends ? 1 : 0, std::ssize(plan.parts)};
  for (const StepPart& part : plan.parts) {
    numbers.insert(numbers.end(), {part.slot, part.start, static_cast<int64_t>(part.wanted),
                                   std::ssize(part.tokens)});
    numbers.insert(numbers.end(), part.tokens.begin(), part.tokens.end());
  }
  return numbers;
}

StepPlan decode(const int64_t* numbers) {
  StepPlan plan;
  plan.ends = numbers[0] != 0;
  plan.parts.resize(static_cast<size_t>(numbers[1]));
  numbers += kPlanHead;
  for (StepPart& part : plan.parts) {
    part.slot = numbers[0];
    part.start = numbers[1];
    part.wanted = static_cast<Wanted>(numbers[2]);
    part.tokens.assign(numbers + kPartHead, numbers + kPartHead + numbers[3]);
    numbers += kPartHead + numbers[3];
  }
  return plan;
}

}  // namespace

StepPlan share_plan(const dist::Group& group, const StepPlan& plan, int64_t most_parts,
                    int64_t most_tokens) {
  if (group.size() == 1) return plan;
  at::Tensor shared = at::empty({kPlanHead + most_parts * kPartHead + most_tokens}, at::kLong);
  auto* const data = shared.mutable_data_ptr<int64_t>();
  if (group.rank() == 0) {
    const std::vector<int64_t> numbers = encode(plan);
    core::check<core::InternalError>(std::ssize(numbers) <= shared.numel(), "serve: a plan of ",
                                     numbers.size(), " numbers, expected at most ", shared.numel());
    std::ranges::copy(numbers, data);
  }
  group.broadcast(shared, 0);
  return decode(data);
}

}  // namespace weft::serve
