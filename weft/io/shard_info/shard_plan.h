#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/io/shard_info/function_table.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// `ByteRun::file` of what an eager function put in memory: the output of the step before.
inline constexpr size_t kMemoryFile = SIZE_MAX;

/// A function that runs in memory during load, on all of `input`.
struct EagerStep {
  std::string name;
  std::shared_ptr<const EagerFunction> function;
  std::vector<Argument> arguments;
  /// Over the file, or over the step before (kMemoryFile).
  View input;
  TensorType output;

  uint64_t output_bytes() const;
};

/// How a rank gets one parameter: mostly `result` alone, which points into the file.
struct ShardRecipe {
  std::vector<EagerStep> eager_steps;
  /// The shard; over the last eager step's output if there is one.
  View result;

  /// What is read from the file.
  const View& file_view() const { return eager_steps.empty() ? result : eager_steps[0].input; }
};

/// One parameter on all ranks.
struct PlannedParam {
  std::string name;
  /// By rank; a single one if all ranks hold the same.
  std::vector<ShardRecipe> recipes;

  const ShardRecipe& of(int64_t rank) const {
    return recipes[recipes.size() == 1 ? 0 : static_cast<size_t>(rank)];
  }
};

/// What all ranks read, derived from headers alone. Every rank makes the plan for all ranks, so all
/// come to the same verdict before anything is read, and a failure is the same text on each.
class ShardPlan {
 public:
  /// Throws FormatError, ShapeError or ConfigError that name shard_info's path, parameter, step,
  /// shapes and remedy: for missing tensors, unknown functions, sizes that don't fit, steps whose
  /// result has other than `num_ranks` shards, cut units.
  static ShardPlan make(const TensorFile& file, const ShardInfo& info, int64_t num_ranks,
                        const FunctionTable& functions);

  int64_t num_ranks() const { return num_ranks_; }
  /// By name. Tensors that rules only use as sources are not in it.
  const std::vector<PlannedParam>& params() const { return params_; }
  const PlannedParam* find(const std::string& name) const;
  /// Bytes of the file that a rank reads, and those of its shards.
  uint64_t planned_bytes(int64_t rank) const;
  uint64_t shard_bytes(int64_t rank) const;
  /// The most that eager functions hold in memory at a time, inputs and outputs.
  uint64_t peak_eager_bytes(int64_t rank) const;
  /// FNV-1a of the whole plan and of the headers that it was made from: equal on ranks that look at
  /// the same files and will read the same runs. Says nothing about the data.
  uint64_t hash() const { return hash_; }

 private:
  int64_t num_ranks_ = 1;
  std::vector<PlannedParam> params_;
  uint64_t hash_ = 0;
};

}  // namespace weft::io
