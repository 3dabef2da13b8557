#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/cli/model/session.h"
#include "weft/cli/options.h"
#include "weft/dist/world.h"
#include "weft/generate/options.h"
#include "weft/models/config/config.h"

namespace weft::cli {

/// What predictions are compared with: --against beside the flags of the model.
struct Reference {
  const ModelOptions& model;
  /// "float", or a model's path.
  const std::string& against;
};

/// From headers alone: throws ConfigError where the reference's vocabulary is another, and what
/// opening it throws. Nothing where there is no reference.
void check_reference(const Reference& reference, const models::ModelConfig& config);

/// Loads the reference beside the session's model, compares their predictions of the tokens, and
/// prints that on rank 0. Collective. Returns the exit code.
int compare_predictions(const Session& session, const Reference& reference,
                        const dist::World& world, const std::vector<int64_t>& tokens,
                        const generate::PerplexityOptions& scoring, bool is_json);

}  // namespace weft::cli
