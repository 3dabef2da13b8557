#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "weft/generate/options.h"
#include "weft/nn/layers/largest.h"

namespace weft::generate {

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
