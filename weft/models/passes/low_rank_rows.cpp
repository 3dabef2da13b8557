#include "weft/models/passes/low_rank_rows.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "weft/core/error.h"
#include "weft/nn/adapters/adapter_scope.h"

namespace weft::models {
namespace {

// Every 16th product by itself, so that the loop takes vectors.
float product_of(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i] * b[i];
  return std::accumulate(lanes.begin(), lanes.end(), 0.F);
}

// y += scale (x A^T) B^T, of one row each; `low` has room for r numbers.
void add_low_rank(const nn::LowRank& adapter, const float* x, float* low, float* y) {
  const int64_t rank = adapter.a.size(0), in = adapter.a.size(1), out = adapter.b.size(0);
  const auto scale = static_cast<float>(adapter.scale);
  const auto* const a = adapter.a.const_data_ptr<float>();
  const auto* const b = adapter.b.const_data_ptr<float>();
  for (int64_t i = 0; i < rank; ++i) low[i] = scale * product_of(a + i * in, x, in);
  for (int64_t i = 0; i < out; ++i) y[i] += product_of(b + i * rank, low, rank);
}

}  // namespace

const LowRankRows::Adapted* LowRankRows::keep(const std::shared_ptr<nn::LinearLike>& linear) {
  auto adapted = std::dynamic_pointer_cast<Adapted>(linear);
  if (adapted == nullptr) return nullptr;
  kept_.push_back(std::move(adapted));
  return kept_.back().get();
}

void LowRankRows::begin(int64_t batch, int64_t tokens) {
  is_used_ = false;
  if (kept_.empty()) return;
  const auto numbers = nn::AdapterScope::current();
  core::check<core::ConfigError>(numbers.size() <= 1 || std::ssize(numbers) == batch,
                                 "models.FusedDecoder: ", batch, " sequences, expected ",
                                 numbers.size(), " as adapters are named for");
  tokens_ = tokens;
  numbers_.assign(static_cast<size_t>(batch), numbers.empty() ? 0 : numbers.front());
  if (numbers.size() > 1) std::ranges::copy(numbers, numbers_.begin());
  is_used_ = std::ranges::any_of(numbers_, [this](int64_t number) {
    return std::ranges::any_of(kept_, [&](const auto& each) { return each->find(number); });
  });
}

void LowRankRows::begin_inputs(int64_t rows, int64_t in) {
  if (!is_used_) return;
  rows_ = rows;
  in_ = in;
  inputs_.of(rows, in);
}

const float* LowRankRows::take_input(int64_t row, const float* numbers) const {
  if (is_used_) std::copy_n(numbers, in_, inputs_.row(row));
  return numbers;
}

void LowRankRows::add(const Adapted* linear, float* y, int64_t stride) {
  if (!is_used_ || linear == nullptr) return;
  int64_t most = 0;
  for (const int64_t number : numbers_) {
    const nn::LowRank* const adapter = linear->find(number);
    if (adapter != nullptr) most = std::max(most, adapter->a.size(0));
  }
  if (most == 0) return;
  low_.of(rows_, most);
  for_rows(rows_, most * (in_ + linear->out_features()), [&](int64_t row) {
    const nn::LowRank* const adapter = linear->find(number_of(row));
    if (adapter != nullptr)
      add_low_rank(*adapter, inputs_.row(row), low_.row(row), y + row * stride);
  });
}

}  // namespace weft::models
