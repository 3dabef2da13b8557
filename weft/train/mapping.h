#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace weft::train {

/// The axes of a training mesh, in the mesh's order: the last is the fastest.
inline constexpr std::array<std::string_view, 4> kAxes = {"replica", "data", "pipe", "model"};

/// What a training rank keeps or computes with.
enum class State {
  /// Sequences of a microbatch, and their activations.
  kBatch,
  /// Parameters between their uses.
  kParameters,
  /// The sums of gradients over microbatches; each replica has sums of its own.
  kGradients,
  /// Masters and moments, and the gradients that they are updated by.
  kOptimizer,
};

/// One row: a kind of state and the axes that it is cut over. Over `pipe` everything is cut by
/// layers, and over `model` by each parameter's own split.
struct Mapping {
  State state;
  std::string_view name;
  std::vector<std::string> axes;
};

/// Where everything lives: partially sharded data parallel. Parameters are cut over data alone, so
/// that gathering them stays within a replica; optimizer state over replica as well, so that no
/// rank holds a copy of another's.
inline const std::array<Mapping, 4> kMappings = {{
    {State::kBatch, "batch", {"replica", "data"}},
    {State::kParameters, "parameters", {"data"}},
    {State::kGradients, "gradients", {"data"}},
    {State::kOptimizer, "optimizer", {"replica", "data"}},
}};

/// The axes of one row.
inline const std::vector<std::string>& axes_of(State state) {
  return kMappings[static_cast<size_t>(state)].axes;
}

}  // namespace weft::train
