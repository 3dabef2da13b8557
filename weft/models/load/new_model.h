#pragma once

#include <cstdint>
#include <memory>

#include "weft/dist/group.h"
#include "weft/io/tensor_file.h"
#include "weft/models/load/agreed_model.h"
#include "weft/models/load/plan.h"
#include "weft/models/load/stage.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"

namespace weft::models {

/// How a new model begins: matrices normal(0, std), norms 1, biases 0.
struct InitOptions {
  uint64_t seed = 0;
  double std = 0.02;
  /// Of all weights; half types are rounded from the float32 numbers of the same seed.
  at::ScalarType dtype = at::kFloat;
  /// What of the model this rank holds; numbers don't depend on it.
  StageLayers layers = std::nullopt;
};

/// `config` with what may be left out: head_dim 0 becomes width / heads, num_kv_heads 0 the number
/// of heads. Throws ConfigError unless all sizes are positive, within limits and fit each other.
ModelConfig complete_config(ModelConfig config);

/// The header that a file of the model would have: Hugging Face's names and whole shapes, float32,
/// in the model's order. It can be planned for, but not read.
std::shared_ptr<const io::TensorFile> header_of(const ModelConfig& config);

/// The plan of a model that no file has, for any number of ranks. Throws ConfigError for a cut that
/// leaves a rank with nothing; the message says which sizes work.
LoadPlan make_plan(const ModelConfig& config, int64_t num_ranks);

/// Plans a new model and checks that all ranks agree on it and on how it begins. Throws and is
/// collective as make_model.
AgreedModel agree_on(const ModelConfig& config, const dist::Group& group,
                     const InitOptions& options = {});

/// A model that begins with random weights, in training mode, all of them parameters that need
/// gradients. A weight is drawn from the seed and its name, by each element's index in the whole:
/// the same model on any number of ranks, and no rank builds a whole. Throws as complete_config and
/// make_plan, CommError if the ranks want different models. Collective over `group`.
std::shared_ptr<CausalLM> make_model(const ModelConfig& config, const dist::Group& group,
                                     const InitOptions& options = {});

/// One rank's initial weights.
class InitialWeights : public WeightSource {
 public:
  /// Keeps a reference to the model's plan.
  InitialWeights(const AgreedModel& agreed, int64_t rank, const InitOptions& options);
  std::shared_ptr<nn::LinearLike> linear(const std::string& base, bool with_bias) const override;
  at::Tensor vector(const std::string& name) const override;

 private:
  at::Tensor logs(const WeightRule& rule, const std::vector<shard::Range>& own) const;
  at::Tensor arrays(const WeightRule& rule, const std::vector<shard::Range>& own) const;

  InitOptions options_;
  /// With which a norm changes nothing.
  double norm_weight_;
};

}  // namespace weft::models
