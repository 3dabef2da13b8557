#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "weft/dist/group.h"
#include "weft/models/model.h"
#include "weft/models/plan.h"
#include "weft/nn/linear_like.h"

namespace weft::models {

/// Builds layers from a plan: reads this rank's slices, nothing else.
class WeightReader {
 public:
  WeightReader(const io::TensorFile& file, const LoadPlan& plan) : file_(file), plan_(plan) {}

  /// The inner linear for the matrix "<base>.weight", dense (float32) or quantized as in the file,
  /// with the vector "<base>.bias" if the plan has it and `with_bias`.
  std::shared_ptr<nn::LinearLike> linear(const std::string& base, bool with_bias) const;
  /// What every rank holds of it along its cut dim.
  shard::Layout layout(const std::string& base) const;
  /// A vector in float32.
  at::Tensor vector(const std::string& name) const;
  /// The vector, or an undefined tensor if the plan does not have it.
  at::Tensor vector_or_undefined(const std::string& name) const;

  const LoadPlan& plan() const { return plan_; }
  const io::ReadStats& stats() const { return stats_; }

 private:
  const io::TensorFile& file_;
  const LoadPlan& plan_;
  mutable io::ReadStats stats_;
};

/// A loaded model and what reading it cost this rank.
struct LoadedModel {
  std::shared_ptr<CausalLM> model;
  io::ReadStats stats;
};

/// Plans from headers, checks that all ranks agree on file and plan, then loads this rank's part.
/// Collective over `group`. Throws FormatError, ConfigError (a cut that leaves a rank with nothing;
/// the message says which sizes work), CommError (the ranks disagree).
LoadedModel load_model(const io::TensorFile& file, const dist::Group& group);

}  // namespace weft::models
