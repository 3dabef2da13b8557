#include "weft/train/pipeline/stage_layers.h"

#include <algorithm>
#include <numeric>

#include "weft/core/error.h"

namespace weft::train {

using core::check;
using core::ConfigError;

std::vector<int64_t> balance_layers(int64_t num_layers, int64_t num_stages,
                                    const LayerCosts& costs) {
  check<ConfigError>(num_stages >= 1 && num_layers >= num_stages,
                     "mesh.pipe: expected at most the model's ", num_layers, " layers, got ",
                     num_stages, "; a stage needs a layer");
  const auto stages = static_cast<size_t>(num_stages);
  std::vector<int64_t> layers(stages, 1);
  std::vector<double> loads(stages, costs.layer);
  loads.front() += costs.before;
  loads.back() += costs.behind;
  for (int64_t i = num_stages; i < num_layers; ++i) {
    const auto least = static_cast<size_t>(std::ranges::min_element(loads) - loads.begin());
    ++layers[least];
    loads[least] += costs.layer;
  }
  return layers;
}

void check_stage_layers(const std::vector<int64_t>& layers, int64_t num_stages, int64_t num_layers,
                        const std::string& where) {
  check<ConfigError>(std::ssize(layers) == num_stages, where, ": expected a number for each of ",
                     num_stages, " stages (mesh.pipe), got ", core::list_text(layers));
  const bool has_all = std::ranges::all_of(layers, [](int64_t count) { return count >= 1; });
  const int64_t sum = std::accumulate(layers.begin(), layers.end(), int64_t{0});
  check<ConfigError>(has_all && sum == num_layers, where,
                     ": expected numbers from 1 that add up to ", num_layers,
                     ", the model's layers, got ", core::list_text(layers), " (", sum,
                     "); leave it out to balance the stages");
}

shard::Range layers_of_stage(const std::vector<int64_t>& layers, int64_t stage) {
  const auto own = layers.begin() + stage;
  return {std::accumulate(layers.begin(), own, int64_t{0}), *own};
}

}  // namespace weft::train
