#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/io/matrix_rules.h"
#include "weft/io/tensor_file.h"
#include "weft/models/config/quantization_config.h"

namespace weft::models {

using io::Cut;
using io::DimSplit;

/// How the numbers of a new model's vector begin.
enum class FirstNumbers {
  /// Biases with 0, norms so that they change nothing.
  kUsual,
  kOnes,
  /// Logarithms of numbers up to 16.
  kLogs,
};

/// One weight of a model: where the file keeps it and how it is cut. Knows no number of ranks.
struct WeightRule {
  /// The model's own name, Hugging Face's spelling, e.g. "model.layers.0.mlp.up_proj.weight".
  std::string name;
  /// The same in the file; a matrix that is stored in parts has others instead of ".weight".
  std::string file_name;
  /// The whole's logical shape; out = 0 for a vector of `in` elements.
  int64_t out = 0;
  int64_t in = 0;
  /// Rows of the tensor in the file if they are not these alone (q, k and v as one); `reorder`
  /// takes these out. 0: as many as `out`.
  int64_t stored_rows = 0;
  /// Of a vector whose elements are arrays (the taps of a convolution's channels): their shape in
  /// the file.
  std::vector<int64_t> element_shape = {};
  /// The file's tensors of which the first step of `reorder` makes it, where there is none of its
  /// own. Plain numbers alone.
  std::vector<std::string> sources = {};
  /// For one matrix of several that a tensor of the file stacks (experts): how many, and which.
  int64_t stack_size = 0;
  int64_t stack_index = -1;
  /// Steps of shard_info that put its rows from the file's order into the model's.
  std::vector<io::ShardStep> reorder;
  /// Where the file has its columns, in equal runs of the model's order; empty: in that order.
  std::vector<shard::Range> column_runs = {};
  /// Of a vector: what the file's numbers are larger by than the model's.
  double stored_offset = 0;
  /// Of a vector: the file has -exp of the model's numbers.
  bool is_stored_as_decay = false;
  FirstNumbers first_numbers = FirstNumbers::kUsual;
  Cut cut = Cut::kWhole;
  /// A name in WeightRules::splits; empty if whole.
  std::string split;

  bool is_vector() const { return out == 0; }
  /// Of a vector of `length` elements: its shape in the file.
  std::vector<int64_t> vector_shape(int64_t length) const;
  /// Numbers of each element: 1 but for arrays.
  int64_t array_size() const;
  /// The name without ".weight".
  std::string base() const;
  io::MatrixRef matrix() const;
};

/// How a mixture's experts are cut over the ranks: each rank a part of every expert, or whole
/// experts dealt out to the ranks.
enum class ExpertSplit { kFfn, kExperts };

/// All weights of a model and how they are cut together.
struct WeightRules {
  std::vector<WeightRule> weights;
  std::map<std::string, DimSplit> splits;
  /// Of dims that no rank cuts where ranks share experts as wholes: how they would be cut.
  std::map<std::string, DimSplit> uncut_splits;
  /// Tensors that the file has and the model does not need.
  std::vector<std::string> unread;

  /// Throws InternalError for a name that the model does not have.
  const WeightRule& find(const std::string& name) const;
};

/// Sets how the heads of attention are cut.
void set_head_split(shard::HeadSplit split, WeightRules& rules);

/// How `info` cuts heads: kEven if any of its rules ends in shard_heads_evenly.
shard::HeadSplit head_split_of(const io::ShardInfo& info);

/// The same for `file` as shard_info, which load-time sharding executes: one rule for each stored
/// part of each weight. Where `override` has a rule for a weight, its rules are taken as they are.
/// `said` is what config.json says of quantization. Throws FormatError for tensors that are
/// missing, of another shape, or stored otherwise than is said.
io::ShardInfo shard_info(const io::TensorFile& file, const WeightRules& rules,
                         const io::ShardInfo* override = nullptr,
                         const QuantizationConfig* said = nullptr);

/// `info` with one rule for all layers wherever they have the same: for people to read.
io::ShardInfo with_patterns(const io::ShardInfo& info);

}  // namespace weft::models
