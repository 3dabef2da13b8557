#include "weft/generate/penalties.h"

namespace weft::generate {

Penalties::Penalties(const SamplerOptions& options)
    : repeat_(options.repeat_penalty),
      presence_(options.presence_penalty),
      frequency_(options.frequency_penalty),
      window_length_(options.repeat_last_n),
      biases_(options.logit_bias) {}

bool Penalties::is_empty() const {
  return repeat_ == 1 && presence_ == 0 && frequency_ == 0 && biases_.empty();
}

void Penalties::begin(std::span<const int64_t> prompt) {
  tokens_.clear();
  in_window_.clear();
  in_answer_.clear();
  if (repeat_ == 1) return;
  for (const int64_t token : prompt) note(token);
}

void Penalties::note(int64_t token) {
  tokens_.push_back(token);
  ++in_window_[token];
  if (window_length_ < 0 || std::ssize(tokens_) <= window_length_) return;
  const int64_t left = tokens_[tokens_.size() - 1 - static_cast<size_t>(window_length_)];
  const auto found = in_window_.find(left);
  if (--found->second == 0) in_window_.erase(found);
}

void Penalties::add(int64_t token) {
  if (repeat_ != 1) note(token);
  if (presence_ != 0 || frequency_ != 0) ++in_answer_[token];
}

void Penalties::apply(std::span<float> logits) const {
  for (const auto& [token, count] : in_window_) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = static_cast<float>(logit > 0 ? logit / repeat_ : logit * repeat_);
  }
  for (const auto& [token, count] : in_answer_) {
    const double less = presence_ + frequency_ * static_cast<double>(count);
    logits[static_cast<size_t>(token)] -= static_cast<float>(less);
  }
  for (const TokenBias& each : biases_) {
    logits[static_cast<size_t>(each.token)] += static_cast<float>(each.bias);
  }
}

}  // namespace weft::generate
