#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/cli/options.h"
#include "weft/models/adapter.h"
#include "weft/train/config/train_config.h"

namespace weft::cli {

/// What --adapter names.
struct GivenAdapter {
  std::unique_ptr<models::AdapterSource> adapters;
  /// That of the run that trained them; none for a folder of peft.
  std::optional<train::TrainConfig> run;
};

/// The adapters of --adapter: of a run of weft lora (its newest checkpoint), of one of its
/// checkpoints, or of a folder that peft has saved; none without the flag. Throws ConfigError for a
/// path that is none of these, and as models::open_peft_folder and train::open_run_adapter.
std::optional<GivenAdapter> open_adapter(const ModelOptions& options);

/// Those of --adapter NAME=…, in their order. Throws as open_adapter, and ConfigError for a run
/// that quantized its base, which others want as it is.
std::vector<GivenAdapter> open_named_adapters(const ModelOptions& options);

/// The model that the flags mean: MODEL, else the base of the run that --adapter names, else as
/// model_path. Throws as open_adapter.
std::string base_path(const ModelOptions& options);

/// Makes of a loaded base what the adapters were trained beside, and puts them there. `base` is its
/// path: that of the run's own is quantized as it was in training. Collective over the model's
/// group.
void put_adapter(models::CausalLM& model, const GivenAdapter& adapter, const std::string& base);

}  // namespace weft::cli
