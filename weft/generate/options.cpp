#include "weft/generate/options.h"

#include <cmath>

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
}

}  // namespace weft::generate
