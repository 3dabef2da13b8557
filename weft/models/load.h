#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "weft/dist/group.h"
#include "weft/models/model.h"
#include "weft/models/plan.h"
#include "weft/nn/linear_like.h"

namespace weft::models {

/// Builds layers from a plan: reads one rank's slices, nothing else.
class WeightReader {
 public:
  /// Called after each weight with the bytes read so far and those of the whole plan.
  using Progress = std::function<void(uint64_t read, uint64_t planned)>;

  WeightReader(const io::TensorFile& file, const LoadPlan& plan, int64_t rank,
               Progress progress = {});

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
  void report() const;

  const io::TensorFile& file_;
  const LoadPlan& plan_;
  int64_t rank_;
  Progress progress_;
  uint64_t planned_bytes_ = 0;
  mutable io::ReadStats stats_;
};

/// A loaded model and what reading it cost this rank.
struct LoadedModel {
  std::shared_ptr<CausalLM> model;
  io::ReadStats stats;
};

/// What may be changed about loading.
struct LoadOptions {
  /// Rules that take the place of the model's own, and the functions that they use.
  const io::ShardInfo* shard_info = nullptr;
  io::FunctionTable functions;
  WeightReader::Progress progress;
};

/// The plan of `file` for `num_ranks` ranks, from headers alone. Throws as LoadPlan and
/// read_config.
LoadPlan make_plan(const io::TensorFile& file, int64_t num_ranks, const LoadOptions& options = {});

/// Plans from headers, checks that all ranks agree on file and plan, then loads this rank's part.
/// Collective over `group`. Throws FormatError, ConfigError (a cut that leaves a rank with nothing;
/// the message says which sizes work), CommError (the ranks disagree).
LoadedModel load_model(const io::TensorFile& file, const dist::Group& group,
                       const LoadOptions& options = {});

}  // namespace weft::models
