#pragma once

#include <cstdint>

#include "weft/models/config/config.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {

/// Positions of the first training; Phi-3's files have it beside the scaling.
inline constexpr const char* kOriginalPositionsKey = "original_max_position_embeddings";

/// GGUF's tensors: what frequencies are divided by, and the lists of longrope.
inline constexpr char kRopeDivisors[] = "rope_freqs.weight";
inline constexpr const char* kShortRopeFactors = "rope_factors_short.weight";
inline constexpr const char* kLongRopeFactors = "rope_factors_long.weight";

/// Keys of GGUF behind "<architecture>.".
inline constexpr const char* kRopeDimsGgufKey = "rope.dimension_count";
inline constexpr const char* kRopeTypeGgufKey = "rope.scaling.type";
inline constexpr const char* kOriginalPositionsGgufKey = "rope.scaling.original_context_length";

/// What a family's configuration class has where the file says nothing.
struct RopeDefaults {
  int64_t positions = 2048;
  double base = 10'000;
};

/// A number that config.json may have by itself, or among rope's parameters, which are `rope`.
/// Throws FormatError if it has both and they differ: programs disagree on which one goes.
double real_of_rope(const JsonKeys& keys, const JsonKeys& rope, const char* key, double fallback);

/// Rope's base, scaling and the number of positions from config.json: `rope_theta`,
/// `rope_scaling`, or `rope_parameters` of newer transformers, which holds both.
/// Throws FormatError, ConfigError for a type of scaling that weft does not know.
void read_rope(const JsonKeys& keys, const RopeDefaults& defaults, ModelConfig& config);

/// The same from a GGUF's <architecture>.rope.* keys, once head_dim is known, with rope_dims for
/// families that may turn a part of a head. A scaling of type kLongRope has its lists already.
/// Throws as the other.
void read_rope(const GgufKeys& keys, const std::string& architecture, ModelConfig& config);

}  // namespace weft::models
