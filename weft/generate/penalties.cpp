#include "weft/generate/penalties.h"

#include <algorithm>

namespace weft::generate {

Penalties::Penalties(const SamplerOptions& options)
    : repeat_(options.repeat_penalty),
      presence_(options.presence_penalty),
      frequency_(options.frequency_penalty),
      window_length_(options.repeat_last_n) {
  for (const TokenBias& each : options.logit_bias) biases_[each.token] = each.bias;
}

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

float Penalties::changed(int64_t token, float logit) const {
  if (in_window_.contains(token)) {
    logit = static_cast<float>(logit > 0 ? logit / repeat_ : logit * repeat_);
  }
  if (const auto found = in_answer_.find(token); found != in_answer_.end()) {
    logit -= static_cast<float>(presence_ + frequency_ * static_cast<double>(found->second));
  }
  if (const auto found = biases_.find(token); found != biases_.end()) {
    logit += static_cast<float>(found->second);
  }
  return logit;
}

bool Penalties::only_lowers() const {
  return repeat_ >= 1 && presence_ >= 0 && frequency_ >= 0 &&
         std::ranges::all_of(biases_, [](const auto& each) { return each.second <= 0; });
}

int64_t Penalties::num_changed() const {
  return std::ssize(in_window_) + std::ssize(in_answer_) + std::ssize(biases_);
}

void Penalties::apply(std::span<float> logits) const {
  const auto change = [&](int64_t token) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = changed(token, logit);
  };
  for (const auto& [token, count] : in_window_) change(token);
  for (const auto& [token, count] : in_answer_) {
    if (!in_window_.contains(token)) change(token);
  }
  for (const auto& [token, bias] : biases_) {
    if (!in_window_.contains(token) && !in_answer_.contains(token)) change(token);
  }
}

}  // namespace weft::generate
