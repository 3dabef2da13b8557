#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "weft/dist/ordered_sum.h"
#include "weft/models/load/plan.h"
#include "weft/nn/linear/linear_like.h"
#include "weft/shard/layout.h"

namespace weft::models {

/// Where the layers of a model get one rank's weights from: a file, or random numbers. Names are
/// the model's own, in Hugging Face's spelling; shapes and cuts are those of a plan.
class WeightSource {
 public:
  WeightSource(const LoadPlan& plan, int64_t rank) : plan_(plan), rank_(rank) {}
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  /// The inner linear for the matrix "<base>.weight", dense or quantized, with the vector
  /// "<base>.bias" if the plan has it and `with_bias`. A vector is taken as a matrix of one row.
  virtual std::shared_ptr<nn::LinearLike> linear(const std::string& base, bool with_bias) const = 0;
  /// A floating vector.
  virtual at::Tensor vector(const std::string& name) const = 0;
  /// Whether several threads may ask at once: many small matrices are then made side by side.
  virtual bool serves_threads() const { return false; }
  /// Whether the model is to give the same bits on any number of ranks (LoadOptions::is_exact).
  virtual bool is_exact() const { return false; }

  /// Where is_exact, the sums over the ranks of products whose columns are cut along a named split,
  /// in their one order, for all who ask in memory of one; else null. By one thread at a time.
  /// Throws ConfigError for more than kMostExactRanks ranks, and where a rank's columns are no
  /// whole blocks of panels.
  std::shared_ptr<dist::OrderedSum> ordered_sum(const std::string& split,
                                                const dist::Group& group) const;
  /// The same of sums over a token's experts of so many, which ranks share as the plan has it.
  std::shared_ptr<dist::OrderedSum> ordered_experts(int64_t num_experts,
                                                    const dist::Group& group) const;

  /// Where is_exact, throws ConfigError unless products with this linear, "<base>.weight", have one
  /// order.
  void check_in_order(const nn::LinearLike& linear, const std::string& base) const;

  /// What every rank holds of "<base>.weight" along its cut dim.
  shard::Layout layout(const std::string& base) const;
  /// The vector, or an undefined tensor if the plan does not have it.
  at::Tensor vector_or_undefined(const std::string& name) const {
    return plan_.find(name) == nullptr ? at::Tensor() : vector(name);
  }
  const LoadPlan& plan() const { return plan_; }
  int64_t rank() const { return rank_; }

 private:
  const LoadPlan& plan_;
  int64_t rank_;
  /// By split; of the experts by "".
  mutable std::map<std::string, std::shared_ptr<dist::OrderedSum>> ordered_;
};

/// The model's numbers of a vector, from those that the file has of it. Throws FormatError,
/// beginning with `where`, for numbers that none stands for.
at::Tensor from_stored(const at::Tensor& stored, const WeightRule& rule, const std::string& where);
/// Whether they differ.
inline bool differs_in_file(const WeightRule& rule) {
  return rule.stored_offset != 0 || rule.is_stored_as_decay;
}

}  // namespace weft::models
