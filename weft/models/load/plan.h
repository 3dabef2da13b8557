#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/load_tensor.h"
#include "weft/io/shard_info/shard_plan.h"
#include "weft/io/tensor_file.h"
#include "weft/models/config/quantization_config.h"
#include "weft/models/load/weight_rules.h"
#include "weft/shard/layout.h"
#include "weft/shard/sum_order.h"

namespace weft::models {

/// Numbers of ranks whose sums agree where they are asked to (LoadOptions::is_exact).
inline constexpr int64_t kMostExactRanks = 8;

/// One weight on all ranks.
struct PlannedWeight {
  WeightRule rule;
  /// How it is stored; a vector is one dense part.
  io::MatrixFormat format;
  /// The parts in format.parts' order, by their index in LoadPlan::params.
  std::vector<size_t> parts;
};

/// What a plan depends on beside the file, the rules and the number of ranks.
struct PlanOptions {
  /// A user's rules, which take the place of the model's own for the parameters that they name.
  const io::ShardInfo* shard_info = nullptr;
  /// What those may call beside weft's own functions.
  io::FunctionTable functions;
  /// What config.json says of quantization; checked against the tensors.
  std::optional<QuantizationConfig> quantization;
};

/// What every rank holds and reads, derived from headers alone: each rank plans for all.
class LoadPlan {
 public:
  /// Throws FormatError (the file and the rules or config.json differ), ConfigError (a cut that
  /// leaves a rank with nothing; the message says which sizes work), ShapeError (a user's rule
  /// gives another shape than the model needs).
  LoadPlan(const io::TensorFile& file, const WeightRules& rules, int64_t num_ranks,
           const PlanOptions& options = {});

  int64_t num_ranks() const { return params_.num_ranks(); }
  const std::vector<PlannedWeight>& weights() const { return weights_; }
  /// Null for a name that the plan does not have.
  const PlannedWeight* find(const std::string& name) const;
  /// Throws InternalError for a name that the plan does not have.
  const PlannedWeight& require(const std::string& name) const;
  /// By named split: which elements each rank holds. Of a dim that no rank cuts
  /// (WeightRules::uncut_splits): what one rank holds.
  const shard::Layout& split(const std::string& name) const;
  /// Whether each expert of a mixture is whole on one rank.
  bool shares_experts() const { return shares_experts_; }
  /// The order in which sums along a named split have the same bits for 1 to kMostExactRanks ranks,
  /// as far as these cut it at multiples of `run`. Throws InternalError for a name that the plan
  /// does not have.
  shard::SumOrder sum_order(const std::string& name, int64_t run) const;
  /// The same over so many units, each whole on one rank, that ranks share evenly in their order.
  static shard::SumOrder sum_order(int64_t units);
  const io::ShardPlan& params() const { return params_; }

  /// What a rank wants of a weight, in the model's order.
  io::MatrixSlice slice(const PlannedWeight& weight, int64_t rank) const;
  /// The same as places in what its recipes cover: other columns where the file has them in another
  /// order (WeightRule::column_runs).
  io::MatrixSlice stored_slice(const PlannedWeight& weight, int64_t rank) const;
  /// Bytes of the file that a rank reads for it.
  uint64_t planned_bytes(const PlannedWeight& weight, int64_t rank) const;
  /// The recipe of one of its parts.
  const io::ShardRecipe& recipe(const PlannedWeight& weight, size_t part, int64_t rank) const;

 private:
  void add_weight(const io::TensorFile& file, const WeightRule& rule);
  void take_quantization(const QuantizationConfig& config);
  void check_shapes(const PlannedWeight& weight, const std::string& where) const;
  void check_all_used(const io::TensorFile& file, const io::ShardInfo* override) const;

  std::vector<PlannedWeight> weights_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, DimSplit> splits_;
  std::map<std::string, shard::Layout> layouts_;
  bool shares_experts_ = false;
  io::ShardPlan params_;
};

}  // namespace weft::models
