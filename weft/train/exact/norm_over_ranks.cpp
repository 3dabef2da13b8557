#include "weft/train/exact/norm_over_ranks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/train/exact/exact_norm.h"

namespace weft::train {
namespace {

// Numbers that one thread looks at for the norm.
constexpr size_t kNormPart = 1 << 16;

// What each part gives, by several threads; `none` alone without parts.
template <class Value, class Use>
std::vector<Value> over_parts(const std::vector<std::span<const float>>& parts, const Value& none,
                              Use&& use) {
  std::vector<Value> values(std::max<size_t>(1, parts.size()), none);
  at::parallel_for(0, std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); std::cmp_less(i, end); ++i) values[i] = use(parts[i]);
  });
  return values;
}

}  // namespace

double exact_norm(const std::vector<std::span<const float>>& runs, const dist::Group& all) {
  std::vector<std::span<const float>> parts;
  int64_t count = 0;
  for (std::span<const float> run : runs) {
    count += std::ssize(run);
    for (; !run.empty(); run = run.subspan(parts.back().size())) {
      parts.push_back(run.first(std::min(run.size(), kNormPart)));
    }
  }
  const auto largest = over_parts<double>(
      parts, 0.0, [](std::span<const float> part) { return largest_size(part); });
  at::Tensor most = at::full({1}, std::ranges::max(largest), at::kDouble);
  at::Tensor counts = at::full({1}, count, at::kLong);
  all.all_reduce(most, dist::ReduceOp::kMax);
  all.all_reduce(counts);
  const auto whole_largest = most.item<double>();
  if (!std::isfinite(whole_largest)) return whole_largest;
  const ExactSquares none(whole_largest, counts.item<int64_t>());
  ExactSquares squares = none;
  for (const ExactSquares& each : over_parts(parts, none, [&](std::span<const float> part) {
         ExactSquares own = none;
         own.add(part);
         return own;
       })) {
    for (size_t i = 0; i < each.sums().size(); ++i) squares.sums()[i] += each.sums()[i];
  }
  at::Tensor sums = at::tensor(at::ArrayRef<double>(squares.sums()), at::kDouble);
  all.all_reduce(sums);
  std::copy_n(sums.const_data_ptr<double>(), squares.sums().size(), squares.sums().begin());
  return std::sqrt(squares.total());
}

}  // namespace weft::train
