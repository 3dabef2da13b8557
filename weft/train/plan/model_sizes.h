#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/shard/heads.h"
#include "weft/train/config/train_config.h"

namespace weft::train {

/// What of a decoder-only model decides how many parameters it has and where they lie.
struct ModelSizes {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  /// The output head is the embedding.
  bool is_tied = false;
  bool has_qkv_bias = false;
  /// A norm's weight for the queries' and one for the keys' heads.
  bool has_head_norms = false;
  /// The same for all queries' features together, and for all keys'.
  bool has_norms_over_heads = false;
  /// Four norms in a block instead of two.
  bool has_norms_before_and_after = false;

  bool operator==(const ModelSizes&) const = default;
};

/// Of a new model, whose section complete_model has filled. Throws ConfigError if the vocabulary's
/// size is not known yet.
ModelSizes sizes_of(const ModelSection& model);

/// A place on the axes that cut parameters themselves.
struct ModelPlace {
  int64_t tp = 1;
  int64_t model_rank = 0;
  int64_t pipe = 1;
  int64_t stage = 0;
  /// Norms see a model rank's own tokens: their gradients are summed over that axis.
  bool sequence_parallel = false;
  /// As in [mesh].
  std::vector<int64_t> pipe_layers = {};
};

/// Layers of each of `pipe` stages: `pipe_layers`, or, if that is empty, balanced by the parameters
/// that a token is multiplied with, the head's among them; the embedding is only looked up. Throws
/// ConfigError for more stages than layers, and for a list that does not fit.
std::vector<int64_t> stage_layers(const ModelSizes& model, int64_t pipe,
                                  const std::vector<int64_t>& pipe_layers);

/// What a stage computes of a model, by those parameters: from above 0 to 1.
double stage_work(const ModelSizes& model, const ModelPlace& place);

/// What a rank holds of a model's dims.
struct RankSizes {
  shard::HeadShard heads;
  int64_t ffn_width = 0;
  int64_t vocab_size = 0;
  int64_t num_layers = 0;
  bool has_embedding = true;
  /// The last norm and the head.
  bool has_head = true;
};
/// Heads, feed-forward columns and vocabulary rows are cut over tp as weft's decoder cuts them,
/// layers over pipe as stage_layers says. Throws ConfigError if a rank would have nothing.
RankSizes rank_sizes(const ModelSizes& model, const ModelPlace& place);

/// Parameters that are gathered together (a unit of shard_module), as one rank holds them.
struct UnitSizes {
  /// Elements of each parameter.
  std::vector<int64_t> numels;
  /// Sum of rows and columns of the matrices, whole.
  int64_t rows_and_columns = 0;
  /// Which of `numels` are matrices of a block: what Muon makes orthogonal.
  std::vector<size_t> hidden_matrices;

  int64_t num_elements() const;
  /// On several stages, which sum its gradients.
  bool is_shared = false;
  /// Of gradients that are summed over the model axis.
  bool is_sum = false;
};
/// One for each block of the rank's stage, and after them what is around: embedding, last norm and
/// head, as far as the stage has them. Of several stages the first and the last have a tied
/// embedding each, as a unit by itself. With sequence parallelism over several ranks norms are in a
/// unit of their own, before that.
std::vector<UnitSizes> unit_sizes(const ModelSizes& model, const ModelPlace& place);

/// Of the whole model.
int64_t num_parameters(const ModelSizes& model);

/// Of the whole model, without an embedding table that is only looked up: N of flops_per_token.
int64_t num_matmul_parameters(const ModelSizes& model);

}  // namespace weft::train
