#include "weft/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;

int64_t likeliest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

// Minus infinity is how a token is ruled out; the others come from broken weights.
bool is_broken(float logit) {
  return std::isnan(logit) || logit == std::numeric_limits<float>::infinity();
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
  const int64_t best = likeliest(logits);
  const bool is_sound = !logits.empty() && std::isfinite(logits[best]) &&
                        std::none_of(logits.begin(), logits.end(), is_broken);
  check<ConfigError>(is_sound,
                     "generate: the model's logits are not finite; its weights or their reading "
                     "are broken");
  if (options_.temperature == 0.0) return best;
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
