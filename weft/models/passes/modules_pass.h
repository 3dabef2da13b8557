#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "weft/models/passes/pass.h"

namespace weft::models {

/// A cache for the positions of a model, as its token mixers fill it as modules: keys and values,
/// latents (on all ranks, as keys of one head) or states, by layer; of float32.
nn::KvCache::Options cache_options(const PassParts& parts);

/// The blocks one after the other, each as its module says: what every other pass is compared with,
/// and the only one with gradients, without a cache, and for a stage of a pipeline. It knows every
/// option.
class ModulesPass : public Pass {
 public:
  explicit ModulesPass(PassParts parts) : parts_(std::move(parts)) {}
  bool is_complete() const override { return true; }
  bool is_current() const override { return true; }
  bool takes(const nn::KvCache* /*cache*/) const override { return true; }
  nn::KvCache make_cache(const CacheRequest& request) const override;
  /// x_BTD may be what the stage before gave, or a rank's rows of it (PassContext::rows).
  at::Tensor run(const at::Tensor& x_BTD, const PassContext& context) override;

  /// See TrainingOptions::checkpointed.
  void set_checkpointing(std::vector<bool> blocks) { checkpointed_ = std::move(blocks); }

 private:
  at::Tensor run_block(size_t index, const at::Tensor& x_BTD, const PassContext& context) const;

  PassParts parts_;
  std::vector<bool> checkpointed_;
};

}  // namespace weft::models
