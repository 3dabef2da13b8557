#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "weft/dist/group.h"
#include "weft/models/load/agreed_model.h"
#include "weft/models/load/plan.h"
#include "weft/models/load/stage.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::models {

/// The half type that takes the numbers of such a matrix as plain ones, if it does not have one
/// itself: bfloat16 for small floats (as transformers has it), float16 for integers.
at::ScalarType plain_half(io::MatrixKind kind);

/// Where a model that infers alone keeps its matrices; by default in the file's order.
struct MatrixPlace {
  /// Bits of activations, 8 or 16, for panels (nn::PanelLinear); 0: none.
  int64_t panel_activation_bits = 0;
  /// On this process's GPU (nn::CudaLinear).
  bool on_cuda = false;
  /// As nn::PanelOptions::is_exact.
  bool is_exact = false;

  /// Whether matrices of float16 and bfloat16 stay as they are stored.
  bool keeps_halves() const { return panel_activation_bits != 0 || on_cuda; }
};

/// Builds layers from a plan: reads one rank's slices of a file, nothing else.
class WeightReader : public WeightSource {
 public:
  /// Called after each weight with the bytes read so far and those of the whole plan, by one thread
  /// at a time.
  using Progress = std::function<void(uint64_t read, uint64_t planned)>;

  /// Floating weights become `dtype`; quantized ones stay as they are stored. Matrices go into
  /// panels or onto a GPU as they are read, if `place` says so.
  WeightReader(const io::TensorFile& file, const LoadPlan& plan, int64_t rank,
               Progress progress = {}, at::ScalarType dtype = at::kFloat, MatrixPlace place = {});

  std::shared_ptr<nn::LinearLike> linear(const std::string& base, bool with_bias) const override;
  at::Tensor vector(const std::string& name) const override;
  /// A thread has a GPU of its own choice.
  bool serves_threads() const override { return !place_.on_cuda; }
  bool is_exact() const override { return place_.is_exact; }

  const io::ReadStats& stats() const { return stats_; }

 private:
  void report(const io::ReadStats& own) const;
  at::ScalarType matrix_dtype(const PlannedWeight& weight) const;
  std::shared_ptr<nn::LinearLike> in_order(std::shared_ptr<nn::LinearLike> linear) const;

  const io::TensorFile& file_;
  Progress progress_;
  at::ScalarType dtype_;
  MatrixPlace place_;
  uint64_t planned_bytes_ = 0;
  mutable std::mutex mutex_;
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
  /// Of floating weights. Undefined, for inference: matrices of float16 and bfloat16 stay as they
  /// are stored (nn::HalfLinear) and are computed with in float32; vectors become float32.
  at::ScalarType dtype = at::kFloat;
  /// For inference: matrices go into panels (nn::PanelLinear), those of float16 and bfloat16 as
  /// they are stored, and activations are rounded to 8 or 16 bits on their way into products with
  /// quantized ones. 0: matrices keep the file's order.
  int64_t panel_activation_bits = 0;
  /// With panels: hidden states and logits have the same bits on 1 to kMostExactRanks ranks, of any
  /// backend and however they cut the model, in texts of any length and beside any others. Weights
  /// of bfloat16 take all their 16 bits. A model that can't be computed so is refused with a
  /// ConfigError when it is first run.
  bool is_exact = false;
  /// For inference: matrices go to this process's GPU (cuda::select_device) as they are read, those
  /// of float16 and bfloat16 as they are stored, and products, norms and attention run there.
  bool on_cuda = false;
  /// Floating weights need gradients and the model is in training mode. Quantized ones are frozen.
  bool is_trainable = false;
  /// What of the model this rank holds: all is planned, and no more is read.
  StageLayers layers = std::nullopt;
  /// Of a mixture's experts. Trainers take kFfn.
  ExpertSplit expert_split = ExpertSplit::kFfn;
  /// Of attention. kEven is faster to infer with, kKv has no gradients to sum. Rules of
  /// `shard_info`, or those that a pre-sharded checkpoint was cut by, decide for themselves.
  shard::HeadSplit head_split = shard::HeadSplit::kKv;
};

/// The plan of `file` for `num_ranks` ranks, from headers alone. Throws as LoadPlan and
/// read_config.
LoadPlan make_plan(const io::TensorFile& file, int64_t num_ranks, const LoadOptions& options = {});

/// Plans `file` and checks that all ranks agree on it. Collective over `group`. Throws as
/// load_model.
AgreedModel agree_on(const io::TensorFile& file, const dist::Group& group,
                     const LoadOptions& options = {});

/// Plans from headers, checks that all ranks agree on file and plan, then loads this rank's part.
/// Collective over `group`. Throws FormatError, ConfigError (a cut that leaves a rank with nothing;
/// the message says which sizes work), CommError (the ranks disagree).
LoadedModel load_model(const io::TensorFile& file, const dist::Group& group,
                       const LoadOptions& options = {});

}  // namespace weft::models
