#pragma once

#include <cstdint>
#include <string>

#include "weft/train/config/train_config.h"

namespace weft::train {

/// Ranks of the model axis among which train.exact has the same bits.
inline constexpr int64_t kMostExactModelRanks = 8;

/// The sizes of a model that is cut over a mesh.
struct MeshFit {
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  /// Rows of the vocabulary; 0: not known yet.
  int64_t vocab_size = 0;
  int64_t intermediate_size = 0;
};

/// Fills what follows from other sizes of a new model: num_kv_heads, head_dim, intermediate_size,
/// max_positions. Throws ConfigError for sizes that are missing or don't fit each other, and beside
/// `from` for whatever a new model is made of.
void complete_model(TrainConfig& config);

/// Checks what needs no file and no world: that values fit each other. Of a new model also that it
/// fits the mesh. Throws ConfigError: one line with what would work.
void check_config(const TrainConfig& config);

/// Checks that training can begin: there is a run folder and there are data, in files that can be
/// read as such, `model.from` and `model.tokenizer` exist, and `model.from` is not the folder of a
/// run. Throws ConfigError, and as core::File for a data file that can't be read.
void check_inputs(const TrainConfig& config);

/// Checks that the mesh's sizes multiply to the ranks that there are. Throws ConfigError with sizes
/// that do.
void check_world(const TrainConfig& config, int64_t world_size);

/// Checks that a model of these sizes can be cut over the mesh. Throws ConfigError.
void check_model_fits(const TrainConfig& config, const MeshFit& model);

/// How the sequences of a step are dealt out. Valid once check_config has passed.
struct BatchPlan {
  /// Of a step, for one data rank.
  int64_t sequences_per_rank = 0;
  /// Sequences that a data rank computes at once.
  int64_t microbatch = 0;
  /// Per step.
  int64_t num_microbatches = 0;
};
/// From [batch] and [mesh].
BatchPlan plan_batch(const TrainConfig& config);

}  // namespace weft::train
