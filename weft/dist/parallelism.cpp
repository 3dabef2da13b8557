#include "weft/dist/parallelism.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

constexpr const char* kInitParallelism = "dist.init_parallelism";

std::string sizes_text(int64_t model, int64_t pipe) {
  return core::join("model=", model, " x pipe=", pipe);
}

int64_t largest_divisor(int64_t number, int64_t limit) {
  for (int64_t divisor = std::min(number, limit); divisor > 1; --divisor) {
    if (number % divisor == 0) return divisor;
  }
  return 1;
}

// "1, 2 or 4".
std::string divisors_text(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= number; ++i) {
    if (number % i == 0) divisors.push_back(i);
  }
  std::string text;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const char* separator = i == 0 ? "" : i + 1 == divisors.size() ? " or " : ", ";
    text += core::join(separator, divisors[i]);
  }
  return text;
}

// The sizes next below what was asked for, the pipeline kept if possible.
std::string example_text(int64_t ranks, int64_t model, int64_t pipe) {
  const int64_t fitting_pipe = largest_divisor(ranks, pipe);
  const int64_t fitting_model = largest_divisor(ranks / fitting_pipe, model);
  return core::join("model=", fitting_model, " pipe=", fitting_pipe,
                    " (data=", ranks / fitting_pipe / fitting_model, ")");
}

std::optional<Parallelism>& slot() {
  static std::optional<Parallelism> kept;
  return kept;
}

// Apart from the slot, so that asking does not make the slot: it has to go before what groups rely
// on, so it is made after that.
constinit bool is_initialised = false;
// A layer has got the world for its model group.
constinit bool is_world_taken = false;

// The world that init_parallelism made itself: as long as its groups may be asked for.
std::optional<World>& own_world() {
  static std::optional<World> world;
  return world;
}

}  // namespace

ParallelSizes parallel_sizes(int64_t ranks, int64_t model, int64_t pipe) {
  check<ConfigError>(model >= 1 && pipe >= 1, kInitParallelism, ": ", sizes_text(model, pipe),
                     ": expected sizes of at least 1; use model=1 pipe=1 for none");
  int64_t product = 1;
  const bool overflow = __builtin_mul_overflow(model, pipe, &product);
  if (overflow || ranks % product != 0) {
    core::fail<ConfigError>(kInitParallelism, ": ", sizes_text(model, pipe),
                            ": expected a divisor of the world's ", ranks, " ranks, got ",
                            overflow ? "more" : std::to_string(product), "; use model x pipe of ",
                            divisors_text(ranks), ", e.g. ", example_text(ranks, model, pipe));
  }
  return {ranks / product, pipe, model};
}

shard::Range pipeline_layers(int64_t num_layers, int64_t stages, int64_t stage) {
  check<ConfigError>(num_layers >= stages && stages >= 1,
                     "dist.pipeline_layers: expected a layer for each stage, got ", num_layers,
                     " layers for ", stages, " stages; use a pipe size of 1 to ", num_layers);
  return shard::part(num_layers, stages, stage);
}

Parallelism::Parallelism(const World& world, const ParallelSizes& sizes)
    : sizes_(sizes),
      mesh_(world, {{"data", sizes.data}, {"pipe", sizes.pipe}, {"model", sizes.model}}),
      groups_{mesh_.group({"model"}), mesh_.group({"pipe"}), mesh_.group({"data"})} {}

shard::Range Parallelism::pipeline_layers(int64_t num_layers) const {
  return dist::pipeline_layers(num_layers, sizes_.pipe, mesh_.coordinate("pipe"));
}

Parallelism init_parallelism(const World& world, int64_t model, int64_t pipe) {
  const ParallelSizes sizes = parallel_sizes(world.size(), model, pipe);
  if (is_initialised) {
    const ParallelSizes& known = slot()->sizes();
    check<ConfigError>(sizes == known, kInitParallelism, ": ", sizes_text(model, pipe),
                       ": expected ", sizes_text(known.model, known.pipe),
                       " as in the first call, got other sizes; call it once");
    return *slot();
  }
  check<ConfigError>(!is_world_taken || sizes.model == world.size(), kInitParallelism, ": ",
                     sizes_text(model, pipe),
                     ": expected the first call before any layer, got it "
                     "after one has taken all ",
                     world.size(),
                     " ranks for its model group; call it right after the world is made");
  // Groups end before what they rely on, which is therefore there first.
  start_heartbeat();
  slot().emplace(world, sizes);
  is_initialised = true;
  return *slot();
}

Parallelism init_parallelism(int64_t model, int64_t pipe) {
  if (const auto world = World::current()) return init_parallelism(*world, model, pipe);
  start_heartbeat();
  own_world() = World::from_env();
  return init_parallelism(*own_world(), model, pipe);
}

const ParallelGroupInfo& parallel_group_info() {
  check<ConfigError>(
      is_initialised,
      "dist.parallel_group_info: expected init_parallelism to have been called; call "
      "it on every rank once the world is there");
  return slot()->groups();
}

const Group& model_group() {
  if (is_initialised) return slot()->groups().mp;
  if (const auto world = World::current()) {
    is_world_taken = world->size() > 1;
    return world->group();
  }
  static const int world_size = rank_info_from_env().size;
  check<ConfigError>(world_size == 1,
                     "dist.model_group: expected a World, or init_parallelism to have been called, "
                     "for ",
                     world_size,
                     " ranks; make the World first on every rank, or give the layer its group");
  static const Group alone;
  return alone;
}

void reset_parallelism() {
  is_world_taken = false;
  if (!is_initialised) return;
  is_initialised = false;
  slot().reset();
  own_world().reset();
}

}  // namespace weft::dist
