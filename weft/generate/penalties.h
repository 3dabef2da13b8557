#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "weft/generate/options.h"

namespace weft::generate {

/// Lowers the logits of tokens that came before, and adds the biases that a user asked for.
/// repeat_penalty: Keskar et al. 2019, arXiv:1909.05858, section 4.1. The others: OpenAI's API.
class Penalties {
 public:
  /// What of `options` is meant for it; they are taken as checked.
  explicit Penalties(const SamplerOptions& options);

  /// Whether it changes any logits at all.
  bool is_empty() const;
  /// Begins behind a prompt, whose tokens count for repeat_penalty alone.
  void begin(std::span<const int64_t> prompt);
  /// A token of the answer.
  void add(int64_t token);
  /// Changes logits of the whole vocabulary, which has all tokens that were named before.
  void apply(std::span<float> logits) const;
  /// What becomes of one token's logit.
  float changed(int64_t token, float logit) const;
  /// Whether logits can only get lower.
  bool only_lowers() const;
  /// At least as many as the tokens whose logits it changes.
  int64_t num_changed() const;

 private:
  void note(int64_t token);

  double repeat_, presence_, frequency_;
  int64_t window_length_;
  std::unordered_map<int64_t, double> biases_;
  /// Tokens of prompt and answer, of which the last window_length_ are counted in in_window_.
  std::vector<int64_t> tokens_;
  std::unordered_map<int64_t, int64_t> in_window_;
  std::unordered_map<int64_t, int64_t> in_answer_;
};

}  // namespace weft::generate
