#include "weft/generate/options.h"

#include <cmath>
#include <set>

#include "weft/core/error.h"

namespace weft::generate {

using core::check;
using core::ConfigError;

void check_sampler(const SamplerOptions& options) {
  const auto check_range = [](const char* name, double value, double low, double high) {
    check<ConfigError>(std::isfinite(value) && value >= low && value <= high, "--", name, ": ",
                       value, ", expected ", low, " to ", high);
  };
  check_range("temp", options.temperature, 0.0, 100.0);
  check_range("top-p", options.top_p, 0.0, 1.0);
  check_range("min-p", options.min_p, 0.0, 1.0);
  check<ConfigError>(options.top_k >= 0, "--top-k: ", options.top_k, ", expected 0 or more");
  check_range("repeat-penalty", options.repeat_penalty, 0.01, 100.0);
  check<ConfigError>(options.repeat_last_n >= -1, "repeat last n: ", options.repeat_last_n,
                     ", expected -1 or more");
  check_range("presence-penalty", options.presence_penalty, -2.0, 2.0);
  check_range("frequency-penalty", options.frequency_penalty, -2.0, 2.0);
  std::set<int64_t> biased;
  for (const TokenBias& each : options.logit_bias) {
    check_range("logit-bias", each.bias, -100.0, 100.0);
    check<ConfigError>(each.token >= 0, "logit bias: token ", each.token, ", expected 0 or more");
    check<ConfigError>(biased.insert(each.token).second, "logit bias: token ", each.token,
                       " is given twice, expected once");
  }
}

void check_biases(const SamplerOptions& options, int64_t vocab_size) {
  for (const TokenBias& each : options.logit_bias) {
    check<ConfigError>(each.token < vocab_size, "logit bias: token ", each.token,
                       ", expected 0 to ", vocab_size - 1);
  }
}

}  // namespace weft::generate
