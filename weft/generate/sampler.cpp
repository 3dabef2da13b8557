#include "weft/generate/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;

// The largest logit; NaN or infinity if one is broken: minus infinity is how a token is ruled out,
// the others come from broken weights. Lanes of their own, so that it takes the compiler's vectors.
float largest(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> most, broken = {};
  most.fill(-std::numeric_limits<float>::infinity());
  const auto take = [&](float logit, size_t lane) {
    most[lane] = logit > most[lane] ? logit : most[lane];
    // 0 for all numbers and minus infinity, NaN for NaN and infinity.
    const float least = std::numeric_limits<float>::lowest();
    broken[lane] += 0 * (logit < least ? least : logit);
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(logits[i + lane], lane);
  }
  for (; i < logits.size(); ++i) take(logits[i], 0);
  const float sum = std::accumulate(broken.begin(), broken.end(), 0.0F);
  return std::isnan(sum) ? sum : *std::ranges::max_element(most);
}

}  // namespace

void check_sampler(const SamplerOptions& options) {
  const auto check_range = [](const char* name, double value, double low, double high) {
    check<ConfigError>(std::isfinite(value) && value >= low && value <= high, "--", name, ": ",
                       value, ", expected ", low, " to ", high);
  };
  check_range("temp", options.temperature, 0.0, 100.0);
  check_range("top-p", options.top_p, 0.0, 1.0);
  check_range("min-p", options.min_p, 0.0, 1.0);
  check<ConfigError>(options.top_k >= 0, "--top-k: ", options.top_k, ", expected 0 or more");
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {
  check_sampler(options);
}

int64_t Sampler::sample(std::span<const float> logits) {
  const float best = largest(logits);
  check<ConfigError>(std::isfinite(best),
                     "generate: the model's logits are not finite; its weights or their reading "
                     "are broken");
  if (options_.temperature == 0.0) return std::ranges::find(logits, best) - logits.begin();
  return draw(candidates(logits));
}

std::vector<Sampler::Candidate> Sampler::candidates(std::span<const float> logits) const {
  std::vector<Candidate> all;
  all.reserve(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) all.push_back({static_cast<int64_t>(id), logits[id]});
  }
  const auto is_likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const bool has_limit = options_.top_k > 0 && options_.top_k < static_cast<int64_t>(all.size());
  const auto end = has_limit ? all.begin() + options_.top_k : all.end();
  std::partial_sort(all.begin(), end, all.end(), is_likelier);
  all.erase(end, all.end());
  double sum = 0.0;
  for (const Candidate& each : all) sum += std::exp(each.logit - all.front().logit);
  double covered = 0.0;
  size_t kept = 0;
  while (kept < all.size()) {
    const double weight = std::exp(all[kept].logit - all.front().logit);
    if (kept > 0 && (covered >= options_.top_p * sum || weight < options_.min_p)) break;
    covered += weight;
    ++kept;
  }
  all.resize(kept);
  return all;
}

int64_t Sampler::draw(const std::vector<Candidate>& sorted) {
  std::vector<double> weights;
  double sum = 0.0;
  for (const Candidate& each : sorted) {
    weights.push_back(std::exp((each.logit - sorted.front().logit) / options_.temperature));
    sum += weights.back();
  }
  // The library's distributions differ between machines; 53 random bits are the same everywhere.
  double left = static_cast<double>(random_() >> 11) * 0x1.0p-53 * sum;
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    left -= weights[i];
    if (left < 0) return sorted[i].id;
  }
  return sorted.back().id;
}

}  // namespace weft::generate
