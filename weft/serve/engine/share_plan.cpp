#include "weft/serve/engine/share_plan.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace weft::serve {
namespace {

// Numbers that come before a plan's copies and parts, and before a part's tokens.
constexpr int64_t kPlanHead = 6;
constexpr int64_t kPartHead = 12;
constexpr int64_t kCopyNumbers = 3;

void append(std::vector<int64_t>& numbers, const std::vector<PageCopy>& copies) {
  for (const PageCopy& copy : copies) {
    numbers.insert(numbers.end(), {copy.slot, copy.start, copy.page});
  }
}

// The first number says how many there are.
std::vector<int64_t> encode(const StepPlan& plan) {
  std::vector<int64_t> numbers = {0,
                                  plan.ends ? 1 : 0,
                                  std::ssize(plan.loads),
                                  std::ssize(plan.parts),
                                  std::ssize(plan.stores),
                                  std::ssize(plan.freed)};
  append(numbers, plan.loads);
  for (const StepPart& part : plan.parts) {
    numbers.insert(numbers.end(),
                   {part.slot, part.start, static_cast<int64_t>(part.wanted), part.adapter,
                    part.num_likeliest, part.num_guessed, part.first_layer, part.num_layers,
                    std::bit_cast<int64_t>(part.draw.seed), std::bit_cast<int64_t>(part.draw.index),
                    std::bit_cast<int64_t>(part.draw.temperature), std::ssize(part.tokens)});
    numbers.insert(numbers.end(), part.tokens.begin(), part.tokens.end());
  }
  append(numbers, plan.stores);
  numbers.insert(numbers.end(), plan.freed.begin(), plan.freed.end());
  numbers.front() = std::ssize(numbers);
  return numbers;
}

const int64_t* decode(const int64_t* numbers, int64_t count, std::vector<PageCopy>& copies) {
  for (int64_t i = 0; i < count; ++i, numbers += kCopyNumbers) {
    copies.push_back({numbers[0], numbers[1], numbers[2]});
  }
  return numbers;
}

StepPlan decode(const std::vector<int64_t>& encoded) {
  StepPlan plan;
  plan.ends = encoded[1] != 0;
  plan.parts.resize(static_cast<size_t>(encoded[3]));
  const int64_t* numbers = decode(encoded.data() + kPlanHead, encoded[2], plan.loads);
  for (StepPart& part : plan.parts) {
    part.slot = numbers[0];
    part.start = numbers[1];
    part.wanted = static_cast<Wanted>(numbers[2]);
    part.adapter = numbers[3];
    part.num_likeliest = numbers[4];
    part.num_guessed = numbers[5];
    part.first_layer = numbers[6];
    part.num_layers = numbers[7];
    const int64_t* const tokens = numbers + kPartHead;
    part.draw = {std::bit_cast<uint64_t>(numbers[8]), std::bit_cast<uint64_t>(numbers[9]),
                 std::bit_cast<double>(numbers[10])};
    numbers = tokens + numbers[11];
    part.tokens.assign(tokens, numbers);
  }
  numbers = decode(numbers, encoded[4], plan.stores);
  plan.freed.assign(numbers, numbers + encoded[5]);
  return plan;
}

// Sends rank 0's numbers from `begin` to `end` to all ranks, which have as many.
void broadcast(const dist::Group& group, std::vector<int64_t>& numbers, int64_t begin,
               int64_t end) {
  at::Tensor shared = at::empty({end - begin}, at::kLong);
  auto* const data = shared.mutable_data_ptr<int64_t>();
  std::copy(numbers.begin() + begin, numbers.begin() + end, data);
  group.broadcast(shared, 0);
  std::copy_n(data, end - begin, numbers.begin() + begin);
}

}  // namespace

StepPlan share_plan(const dist::Group& group, const StepPlan& plan, int64_t usual_parts,
                    int64_t usual_tokens) {
  if (group.size() == 1) return plan;
  const int64_t usual = kPlanHead + usual_parts * (kPartHead + kCopyNumbers + 1) + usual_tokens;
  std::vector<int64_t> numbers;
  if (group.rank() == 0) numbers = encode(plan);
  numbers.resize(static_cast<size_t>(std::max(usual, std::ssize(numbers))));
  broadcast(group, numbers, 0, usual);
  const int64_t count = numbers.front();
  if (count > usual) {
    numbers.resize(static_cast<size_t>(count));
    broadcast(group, numbers, usual, count);
  }
  return decode(numbers);
}

}  // namespace weft::serve
