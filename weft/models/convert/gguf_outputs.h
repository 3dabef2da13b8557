#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/io/formats/write_gguf.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/load/plan.h"

namespace weft::models {

/// One weight that is written to a tensor of a GGUF file, or to a part of one (an expert), or some
/// of its rows.
struct GgufSource {
  const PlannedWeight* weight = nullptr;
  /// Of a tensor of several matrices, those of experts or of latent attention's heads: which one.
  int64_t expert = 0;
  /// Heads whose rows GGUF keeps in pairs; 0: rows stay.
  int64_t paired_heads = 0;
  /// What GGUF's numbers are larger by.
  double offset = 0;
  /// Empty: all.
  shard::Range rows = {};
  /// Where the model has the columns, in GGUF's order; empty: in that order.
  std::vector<shard::Range> columns = {};
  /// GGUF has these rows as columns.
  bool is_transposed = false;
  /// GGUF has -exp of these numbers.
  bool is_decay = false;
  /// Where the rows are in the tensor, if those of several weights stand in turn.
  int64_t stored_row = 0;

  /// The rows of the weight that are meant.
  shard::Range taken_rows() const;
};

/// A tensor of the GGUF file.
struct GgufOutput {
  io::TensorSpec spec;
  /// The type of plain numbers; spec.dtype may be a block type instead.
  at::ScalarType type = at::kFloat;
  /// What may be quantized: a matrix that is no router and no convolution.
  bool is_matrix = false;
  /// Of its first source.
  PartPlace place = {Part::kEmbedding};
  std::vector<GgufSource> sources;

  int64_t num_columns() const { return spec.shape.back(); }
  /// Of experts or heads; 1: it is one itself.
  int64_t num_matrices() const { return spec.shape.size() > 2 ? spec.shape.front() : 1; }
  int64_t num_elements() const;
};

/// What the tensors of a GGUF file of a plan for one rank are, in the plan's order, as plain
/// numbers of `dtype` (none: as they are stored, quantized ones in float16). Points into the plan.
/// Throws ConfigError for a weight without a name in GGUF, and for parts of one tensor of several
/// types.
std::vector<GgufOutput> choose_gguf_outputs(const LoadPlan& plan, const ModelConfig& config,
                                            std::optional<at::ScalarType> dtype);

}  // namespace weft::models
