#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/generate/options.h"
#include "weft/generate/penalties.h"
#include "weft/nn/logits/gumbel.h"
#include "weft/nn/logits/largest.h"

namespace weft::generate {

/// The token of the largest logit. Throws ConfigError unless that is finite.
int64_t likeliest_token(const nn::Largest& logit);

/// Draws the tokens of one text after the other: of those that filters leave the one with the
/// largest nn::gumbel_sum. The same options, prompt, logits and number of draws give the same token
/// on every machine.
class Sampler {
 public:
  /// Throws ConfigError as check_sampler does.
  explicit Sampler(const SamplerOptions& options);

  /// Begins behind a prompt, whose tokens are in the vocabulary. Needed where needs_logits() is
  /// true and a penalty looks at what came before.
  void begin(std::span<const int64_t> prompt) { penalties_.begin(prompt); }
  /// `logits` of the whole vocabulary. Returns an index into it, which it remembers as the text's
  /// next token; ties go to the lower one. Minus infinity rules a token out. Throws ConfigError if
  /// a logit is NaN or plus infinity, none is finite, or a grammar allows nothing.
  int64_t sample(std::span<const float> logits);
  /// How many of the likeliest tokens by a model's own logits are enough for the next draw; 0: it
  /// takes the whole vocabulary's logits. 1 is enough where needs_logits() is false.
  int64_t num_likeliest() const;
  /// The token that sample draws from the whole vocabulary's logits, of which these are the
  /// likeliest num_likeliest() or more, as nn::largest gives them. Throws as it does.
  int64_t sample_likeliest(std::span<const nn::Largest> likeliest);
  /// The next draw where it takes any token by its own logit; none where something changes logits
  /// or leaves tokens out, or the likeliest one is taken.
  std::optional<nn::GumbelDraw> next_draw() const;
  /// The token that sample draws from the whole vocabulary's logits, which next_draw's
  /// nn::largest_gumbel_sum is. Throws as it does.
  int64_t take_drawn(const nn::Largest& drawn);
  /// False where the likeliest token is all it takes, so that a model need not give logits.
  bool needs_logits() const { return !is_greedy() || changes_logits(); }

 private:
  class Candidates;
  bool is_greedy() const { return options_.temperature == 0; }
  bool changes_logits() const { return matcher_ || !penalties_.is_empty(); }
  void mask(std::span<float> logits);
  int64_t draw_from(std::span<const float> logits);
  bool keeps_all() const;
  nn::GumbelDraw draw() const;
  int64_t draw_from(Candidates& candidates, double best);
  nn::Largest drawn_from(std::span<const nn::Largest> candidates);

  SamplerOptions options_;
  Penalties penalties_;
  std::optional<grammar::Matcher> matcher_;
  /// Logits as grammar, penalties and filters leave them.
  std::vector<float> changed_;
  /// So far.
  uint64_t num_draws_ = 0;
};

}  // namespace weft::generate
