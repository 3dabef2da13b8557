#include "weft/models/adapter.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::models {

using core::check;
using core::ConfigError;

void check_adapter(const AdapterSource& adapters, const LoadPlan& plan, const std::string& model) {
  check<ConfigError>(!adapters.layers().empty(), adapters.path(),
                     ": has no adapters, expected at least one layer's");
  for (const AdapterLayer& layer : adapters.layers()) {
    const PlannedWeight* weight = plan.find(layer.place + ".weight");
    check<ConfigError>(weight != nullptr && !weight->rule.is_vector(), adapters.path(),
                       ": adapts layer ", core::quote(layer.place), ", which ", core::quote(model),
                       " has not; give the model that it was trained on");
    const bool fits = layer.in == weight->rule.in && layer.out == weight->rule.out;
    check<ConfigError>(fits, adapters.path(), ": ", layer.place, ": A [", layer.rank, ", ",
                       layer.in, "] and B [", layer.out, ", ", layer.rank, "], expected [r, ",
                       weight->rule.in, "] and [", weight->rule.out, ", r] for ",
                       core::quote(model), "; give the model that it was trained on");
  }
}

void attach_adapter(CausalLM& model, const AdapterSource& adapters, int64_t number) {
  std::vector<std::string> places;
  for (const AdapterLayer& layer : adapters.layers()) places.push_back(layer.place);
  const auto factors = [&](const std::string& place) {
    return adapters.read(*std::ranges::find(adapters.layers(), place, &AdapterLayer::place));
  };
  nn::attach_lora(model, places, factors, number);
}

}  // namespace weft::models
