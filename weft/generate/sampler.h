#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "weft/nn/layers/largest.h"

namespace weft::generate {

/// How the next token is drawn. Filters apply in this order: top_k, top_p, min_p, then temperature.
struct SamplerOptions {
  /// 0 takes the likeliest token.
  double temperature = 0.0;
  /// Keep the k likeliest; 0 keeps all.
  int64_t top_k = 0;
  /// Keep the fewest likeliest tokens whose probabilities sum to p; 1 keeps all.
  double top_p = 1.0;
  /// Keep tokens at least p times as likely as the likeliest; 0 keeps all.
  double min_p = 0.0;
  uint64_t seed = 0;
};

/// Throws ConfigError naming the option that is out of range.
void check_sampler(const SamplerOptions& options);

/// The token of the largest logit. Throws ConfigError unless that is finite.
int64_t likeliest_token(const nn::Largest& logit);

/// Draws tokens. The same options, logits and number of draws give the same token on every machine.
class Sampler {
 public:
  /// Throws ConfigError as check_sampler does.
  explicit Sampler(const SamplerOptions& options);

  /// `logits` of the whole vocabulary. Returns an index into it; ties go to the lower one.
  /// Minus infinity rules a token out. Throws ConfigError if a logit is NaN or plus infinity, or
  /// none is finite.
  int64_t sample(std::span<const float> logits);
  /// Whether it takes the likeliest token.
  bool is_greedy() const { return options_.temperature == 0; }

 private:
  struct Candidate {
    int64_t id;
    double logit;
  };
  class Candidates;
  void keep_likely(Candidates& candidates, double best) const;
  int64_t draw(Candidates& candidates, double best);

  SamplerOptions options_;
  std::mt19937_64 random_;
};

}  // namespace weft::generate
