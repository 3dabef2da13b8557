#pragma once

#include <optional>
#include <string>

#include "weft/dist/group.h"
#include "weft/models/load/deferred_model.h"
#include "weft/train/config/train_config.h"

namespace weft::train {

/// The configuration of the model that a run trains: that of config.model.from, or of the sizes
/// given, with `vocab_size` rows, the tokenizer's, unless config.model says how many. Throws
/// ConfigError, also for a model with fewer rows than that; FormatError.
models::ModelConfig run_model_config(const TrainConfig& config, int64_t vocab_size);

/// What of a model a run trains.
enum class TrainedPart {
  kAll,
  /// Low-rank adapters beside frozen weights, which may be quantized ([lora]).
  kAdapters,
};

/// Whether lora.quantize_bits means the layer at `path`: a matrix of a block.
bool is_quantized_for_lora(const std::string& path);

/// Quantizes the matrices of a base's blocks to lora.quantize_bits; nothing if that is 0. Embedding
/// and head stay as they are. Collective over the model's group. Throws ConfigError for matrices
/// that are quantized already.
void quantize_base(models::CausalLM& model, const TrainConfig& config);

/// The model itself in float32, this rank's part, ready to be trained: of config.model.from, or
/// new. With kAdapters the weights are read at once and have no deferred values; those of
/// config.lora.targets get adapters that begin with no effect, on a stage those that it has. With
/// `stage`, a place on the pipe axis, that stage's layers alone. Collective over `group`, the model
/// axis. Throws ConfigError for targets that the model does not have (check_run says so of stages),
/// and for stages that it can't be cut into.
models::DeferredModel make_run_model(const TrainConfig& config, TrainedPart part,
                                     int64_t vocab_size, const dist::Group& group,
                                     std::optional<int64_t> stage = std::nullopt);

}  // namespace weft::train
