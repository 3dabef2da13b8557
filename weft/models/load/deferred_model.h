#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/models/model.h"

namespace weft::models {

/// A model to be trained whose matrices have their shapes but no values: nothing is read or drawn,
/// and memory that nobody writes to is none. Whoever keeps the parameters elsewhere, in parts, asks
/// for their values one by one, so that a rank never holds more of the model than that.
struct DeferredModel {
  std::shared_ptr<CausalLM> model;
  /// This rank's shard of the parameter with that name (nn::ParameterInfo::name), in the dtype that
  /// was asked for: read or drawn anew at each call.
  std::function<at::Tensor(const std::string& name)> values;
};

/// make_model and load_model (with options.is_trainable) with floating matrices deferred; what the
/// file holds quantized is frozen and read at once. Collective and throw as they do.
DeferredModel defer_model(const ModelConfig& config, const dist::Group& group,
                          const InitOptions& options = {});
DeferredModel defer_model(std::shared_ptr<const io::TensorFile> file, const dist::Group& group,
                          const LoadOptions& options = {});

}  // namespace weft::models
