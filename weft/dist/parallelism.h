#pragma once

#include <cstdint>

#include "weft/dist/group.h"
#include "weft/dist/mesh.h"
#include "weft/dist/world.h"
#include "weft/shard/split.h"

namespace weft::dist {

/// How many ranks each axis of init_parallelism's mesh has.
struct ParallelSizes {
  int64_t data = 1;
  int64_t pipe = 1;
  int64_t model = 1;
  bool operator==(const ParallelSizes&) const = default;
};

/// The sizes for `ranks` ranks: data is what model and pipe leave. Pure arithmetic. Throws
/// ConfigError with the products that work unless model x pipe divides `ranks`.
ParallelSizes parallel_sizes(int64_t ranks, int64_t model, int64_t pipe);

/// Which of `num_layers` layers stage `stage` of `stages` holds: consecutive ones, the first
/// `num_layers mod stages` stages one more, so that every layer is held once. Pure arithmetic.
/// Throws ConfigError if a stage would hold nothing.
shard::Range pipeline_layers(int64_t num_layers, int64_t stages, int64_t stage);

/// This rank's groups: of tensor (model) parallelism, of the pipeline and of data parallelism.
struct ParallelGroupInfo {
  Group mp;
  Group pp;
  Group dp;
};

/// The ranks laid out as data x pipe x model, model fastest: the usual mesh of tensor and pipeline
/// parallel training. A cheap value.
class Parallelism {
 public:
  /// Collective over the world. Prefer init_parallelism.
  Parallelism(const World& world, const ParallelSizes& sizes);

  const Mesh& mesh() const { return mesh_; }
  const ParallelSizes& sizes() const { return sizes_; }
  const ParallelGroupInfo& groups() const { return groups_; }
  /// Which of `num_layers` layers this rank's pipeline stage holds. Throws ConfigError if there are
  /// more stages than layers.
  shard::Range pipeline_layers(int64_t num_layers) const;

 private:
  ParallelSizes sizes_;
  Mesh mesh_;
  ParallelGroupInfo groups_;
};

/// Lays the world out with `model` ranks along the model axis and `pipe` along the pipe axis, data
/// over the rest, and keeps it as the process's current one. Collective over the world. Throws
/// ConfigError, alike on all ranks and before a word is exchanged, if model x pipe does not divide
/// the world (the message lists what does), if it was called before with other sizes, or after a
/// layer has taken the whole world for its model group; the same sizes give the same groups again.
Parallelism init_parallelism(const World& world, int64_t model, int64_t pipe = 1);
/// The same for the world that this process has made, or makes from the environment if there is
/// none yet.
Parallelism init_parallelism(int64_t model = 1, int64_t pipe = 1);

/// The groups that init_parallelism made. Throws ConfigError if it was not called.
const ParallelGroupInfo& parallel_group_info();

/// The group that parallel layers use when none is given: parallel_group_info().mp, or, where
/// nothing was initialised, all ranks of the world that this process has made. Throws ConfigError
/// where the environment names several ranks and there is no world yet.
const Group& model_group();

/// Forgets the current parallelism, for tests and programs that lay out several worlds one after
/// the other. What groups() gave out stays valid. Not to be called while another thread reads.
void reset_parallelism();

}  // namespace weft::dist
