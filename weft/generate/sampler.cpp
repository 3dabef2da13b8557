#include "weft/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
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

Sampler::Sampler(const SamplerOptions& options)
    : options_(options), penalties_(options), random_(options.seed) {
  check_sampler(options);
  if (options.grammar != nullptr) matcher_.emplace(options.grammar);
}

// Candidates from the likeliest on, sorted as far as they are looked at: a draw ends among the
// first of a large vocabulary.
class Sampler::Candidates {
 public:
  explicit Candidates(std::span<const float> logits) {
    all_.reserve(logits.size());
    for (size_t id = 0; id < logits.size(); ++id) {
      if (std::isfinite(logits[id])) all_.push_back({static_cast<int64_t>(id), logits[id]});
    }
  }

  // From the likeliest on.
  Candidates(std::span<const nn::Largest> likeliest, const Penalties& penalties) {
    for (const nn::Largest& each : likeliest) {
      const float logit = penalties.changed(each.place, static_cast<float>(each.value));
      if (std::isfinite(logit)) all_.push_back({each.place, logit});
    }
  }

  size_t size() const { return all_.size(); }
  // Those left, in no order.
  std::span<const Candidate> any_order() const { return all_; }
  const Candidate& at(size_t place) {
    while (place >= sorted_) sort_more();
    return all_[place];
  }
  // Drops all but the `count` likeliest, which are sorted: what is summed over them has one order.
  void keep(size_t count) {
    count = std::min(count, all_.size());
    if (count > 0) at(count - 1);
    all_.resize(count);
    sorted_ = std::min(sorted_, count);
  }

 private:
  // Twice as many as before, so that all of them cost little more than sorting them at once.
  void sort_more() {
    constexpr size_t kLeast = 64;
    const size_t more = std::min(std::max(sorted_, kLeast), all_.size() - sorted_);
    const auto is_likelier = [](const Candidate& a, const Candidate& b) {
      return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    };
    const auto from = all_.begin() + static_cast<std::ptrdiff_t>(sorted_);
    const auto to = from + static_cast<std::ptrdiff_t>(more);
    std::nth_element(from, to - 1, all_.end(), is_likelier);
    std::sort(from, to, is_likelier);
    sorted_ += more;
  }

  std::vector<Candidate> all_;
  size_t sorted_ = 0;
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
  check<core::FormatError>(candidates.size() > 0, kNotFinite);
  const double best = candidates.at(0).logit;
  const int64_t token = is_greedy() ? candidates.at(0).id : draw_from(candidates, best);
  penalties_.add(token);
  return token;
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
  const nn::Largest best = nn::largest(logits);
  const int64_t likeliest = likeliest_token(best);
  if (is_greedy()) return likeliest;
  Candidates candidates(logits);
  return draw_from(candidates, best.value);
}

int64_t Sampler::draw_from(Candidates& candidates, double best) {
  if (options_.top_k > 0) candidates.keep(static_cast<size_t>(options_.top_k));
  keep_likely(candidates, best);
  return draw(candidates, best);
}

// What top_p and min_p leave.
void Sampler::keep_likely(Candidates& candidates, double best) const {
  if (options_.top_p >= 1.0 && options_.min_p <= 0.0) return;
  const auto weight_of = [&](const Candidate& each) { return std::exp(each.logit - best); };
  double sum = 0.0, covered = 0.0;
  for (const Candidate& each : candidates.any_order()) sum += weight_of(each);
  const double enough =
      options_.top_p < 1.0 ? options_.top_p * sum : std::numeric_limits<double>::infinity();
  size_t kept = 0;
  for (; kept < candidates.size(); ++kept) {
    const double weight = weight_of(candidates.at(kept));
    if (kept > 0 && (covered >= enough || weight < options_.min_p)) break;
    covered += weight;
  }
  candidates.keep(kept);
}

int64_t Sampler::draw(Candidates& candidates, double best) {
  const auto weight_of = [&](const Candidate& each) {
    return std::exp((each.logit - best) / options_.temperature);
  };
  double sum = 0.0;
  for (const Candidate& each : candidates.any_order()) sum += weight_of(each);
  // The library's distributions differ between machines; 53 random bits are the same everywhere.
  double left = static_cast<double>(random_() >> 11) * 0x1.0p-53 * sum;
  size_t place = 0;
  for (; place + 1 < candidates.size(); ++place) {
    left -= weight_of(candidates.at(place));
    if (left < 0) break;
  }
  return candidates.at(place).id;
}

}  // namespace weft::generate
