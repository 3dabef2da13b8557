#include "weft/generate/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

using core::check;

constexpr char kNotFinite[] =
    "generate: the model's logits are not finite; its weights or their reading are broken";

}  // namespace

int64_t likeliest_token(const nn::Largest& logit) {
  check<core::FormatError>(std::isfinite(logit.value), kNotFinite);
  return logit.place;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), penalties_(options) {
  check_sampler(options);
  if (options.grammar != nullptr) matcher_.emplace(options.grammar);
}

// Tokens that may come.
class Sampler::Candidates {
 public:
  explicit Candidates(std::span<const float> logits) {
    all_.reserve(logits.size());
    for (size_t id = 0; id < logits.size(); ++id) {
      if (std::isfinite(logits[id])) all_.push_back({logits[id], static_cast<int64_t>(id)});
    }
  }

  // From the likeliest on.
  Candidates(std::span<const nn::Largest> likeliest, const Penalties& penalties) {
    for (const nn::Largest& each : likeliest) {
      const float logit = penalties.changed(each.place, static_cast<float>(each.value));
      if (std::isfinite(logit)) all_.push_back({logit, each.place});
    }
  }

  bool is_empty() const { return all_.empty(); }
  std::span<const nn::Largest> all() const { return all_; }
  nn::Largest likeliest() const { return *std::ranges::min_element(all_, is_likelier); }

  // Sorts those that it keeps, so that what is summed over them has one order.
  void keep_likeliest(size_t count) {
    const auto end = all_.begin() + static_cast<std::ptrdiff_t>(std::min(count, all_.size()));
    std::ranges::partial_sort(all_, end, is_likelier);
    all_.erase(end, all_.end());
  }
  // Of the likeliest the fewest that have this share of all weights, or more. Weights are summed by
  // ranges of logits, so that only those of the range where the share is reached are sorted.
  void keep_share(double share, double best) {
    const auto range_of = [&](const nn::Largest& each) {
      return static_cast<size_t>(std::min((best - each.value) * 64.0, kRanges - 1.0));
    };
    std::array<double, kRanges> sums = {};
    for (const nn::Largest& each : all_) sums[range_of(each)] += weight_of(each, best);
    const double enough = share * std::accumulate(sums.begin(), sums.end(), 0.0);
    double covered = 0.0;
    size_t last = 0;
    while (last + 1 < kRanges && covered + sums[last] < enough) covered += sums[last++];
    drop_if([&](const nn::Largest& each) { return range_of(each) > last; });
    const auto begin = std::partition(
        all_.begin(), all_.end(), [&](const nn::Largest& each) { return range_of(each) < last; });
    std::sort(begin, all_.end(), is_likelier);
    const auto end = std::find_if(begin, all_.end(), [&](const nn::Largest& each) {
      if (covered >= enough && &each != all_.data()) return true;
      covered += weight_of(each, best);
      return false;
    });
    all_.erase(end, all_.end());
  }
  void keep_as_likely(double share_of_best, double best) {
    drop_if([&](const nn::Largest& each) { return weight_of(each, best) < share_of_best; });
  }

 private:
  static constexpr size_t kRanges = 2048;
  static double weight_of(const nn::Largest& each, double best) {
    return std::exp(static_cast<float>(each.value - best));
  }
  template <typename Is>
  void drop_if(const Is& is) {
    std::erase_if(all_, is);
  }
  static bool is_likelier(const nn::Largest& a, const nn::Largest& b) {
    return a.value != b.value ? a.value > b.value : a.place < b.place;
  }

  std::vector<nn::Largest> all_;
};

int64_t Sampler::sample(std::span<const float> logits) {
  if (!changes_logits()) return draw_from(logits);
  changed_.assign(logits.begin(), logits.end());
  if (matcher_) mask(changed_);
  penalties_.apply(changed_);
  const int64_t token = draw_from(changed_);
  penalties_.add(token);
  if (matcher_) {
    check<core::InternalError>(matcher_->accept(token), "generate: a grammar allowed token ", token,
                               " and does not go on with it");
  }
  return token;
}

int64_t Sampler::num_likeliest() const {
  const int64_t wanted = is_greedy() ? 1 : options_.top_k;
  if (matcher_ || !penalties_.only_lowers()) return 0;
  // A token that is not changed stands behind at most as many others as before, and those that are
  // changed come down.
  return wanted == 0 ? 0 : wanted + (penalties_.is_empty() ? 0 : penalties_.num_changed());
}

int64_t Sampler::sample_likeliest(std::span<const nn::Largest> likeliest) {
  const int64_t first = likeliest_token(likeliest.front());
  if (!needs_logits()) return first;
  Candidates candidates(likeliest, penalties_);
  check<core::FormatError>(!candidates.is_empty(), kNotFinite);
  const nn::Largest best = candidates.likeliest();
  const int64_t token = is_greedy() ? best.place : draw_from(candidates, best.value);
  penalties_.add(token);
  return token;
}

std::optional<nn::GumbelDraw> Sampler::next_draw() const {
  if (is_greedy() || changes_logits() || !keeps_all()) return std::nullopt;
  return draw();
}

// Lower temperatures give the same tokens, as long as sums can tell logits apart.
nn::GumbelDraw Sampler::draw() const {
  constexpr double kLeast = 1e-6;
  return {options_.seed, num_draws_, std::max(options_.temperature, kLeast)};
}

int64_t Sampler::take_drawn(const nn::Largest& drawn) {
  ++num_draws_;
  return likeliest_token(drawn);
}

void Sampler::mask(std::span<float> logits) {
  constexpr size_t kWordBits = 32;
  const std::span<const int32_t> allowed = matcher_->allowed();
  bool is_empty = true;
  for (size_t id = 0; id < logits.size(); ++id) {
    const auto word = static_cast<uint32_t>(allowed[id / kWordBits]);
    const bool may_come = (word >> (id % kWordBits) & 1) != 0;
    // What is no number stays, to be refused.
    if (!may_come && !std::isnan(logits[id])) {
      logits[id] = -std::numeric_limits<float>::infinity();
    }
    is_empty &= !may_come;
  }
  check<core::ConfigError>(!is_empty,
                           "generate: the grammar allows no token here; no text ends it");
}

int64_t Sampler::draw_from(std::span<const float> logits) {
  if (!is_greedy() && keeps_all()) {
    return take_drawn(nn::largest_gumbel_sum(draw(), logits, 0));
  }
  const nn::Largest best = nn::largest(logits);
  const int64_t likeliest = likeliest_token(best);
  if (is_greedy()) return likeliest;
  Candidates candidates(logits);
  return draw_from(candidates, best.value);
}

bool Sampler::keeps_all() const {
  return options_.top_k == 0 && options_.top_p >= 1.0 && options_.min_p <= 0.0;
}

int64_t Sampler::draw_from(Candidates& candidates, double best) {
  if (options_.top_k > 0) candidates.keep_likeliest(static_cast<size_t>(options_.top_k));
  if (options_.top_p < 1.0) candidates.keep_share(options_.top_p, best);
  if (options_.min_p > 0.0) candidates.keep_as_likely(options_.min_p, best);
  return take_drawn(drawn_from(candidates.all()));
}

// Of many all together, as if others were ruled out.
nn::Largest Sampler::drawn_from(std::span<const nn::Largest> candidates) {
  constexpr size_t kFew = 1000;
  if (candidates.size() > kFew) {
    const int64_t last = std::ranges::max(candidates, {}, &nn::Largest::place).place;
    changed_.assign(static_cast<size_t>(last) + 1, -std::numeric_limits<float>::infinity());
    for (const nn::Largest& each : candidates) {
      changed_[static_cast<size_t>(each.place)] = static_cast<float>(each.value);
    }
    return nn::largest_gumbel_sum(draw(), changed_, 0);
  }
  nn::Largest best;
  for (const nn::Largest& each : candidates) {
    const double sum = nn::gumbel_sum(draw(), each.place, each.value);
    const bool is_first = sum == best.value && each.place < best.place;
    if (sum > best.value || is_first) best = {sum, each.place};
  }
  return best;
}

}  // namespace weft::generate
