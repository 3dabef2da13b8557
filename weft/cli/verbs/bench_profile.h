#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weft/models/model.h"

namespace weft::cli {

/// What a model's products need, of all ranks together.
struct ModelWork {
  /// Bytes of weights that a new token reads: of a mixture's experts, as many as a token takes.
  int64_t token_bytes = 0;
  /// Floating point operations that a token of a prompt takes in its blocks, of those experts.
  int64_t prompt_token_flops = 0;
};
/// Collective.
ModelWork work_of(models::CausalLM& model);

/// What the machine gives all ranks together when all of them ask at once.
struct MachineLimits {
  double read_bytes_per_s = 0;
  /// By libtorch, of matrices of float32 or bfloat16, whichever is faster.
  double matmul_flops_per_s = 0;
};
/// Takes about half a second. Collective.
MachineLimits measure_limits(const dist::Group& group);

/// The work and limits beside the speeds: {"token_bytes", "read_bytes_per_s", "decode_limit": the
/// most tokens per second, "decode_share": of it, "prefill_limit", "prefill_share"…}.
nlohmann::json roofline(const ModelWork& work, const MachineLimits& limits, double prefill_speed,
                        double decode_speed);

/// What this process's profile has, per token, of every rank: [{"name", "runs", "ms": [of each
/// rank]}…]. Collective; ranks have the same parts.
nlohmann::json profile_of_ranks(const dist::Group& group, int64_t num_tokens);

/// As text: a line per part, a column per rank.
std::string profile_text(const std::string& title, const nlohmann::json& profile);
std::string roofline_text(const nlohmann::json& roofline);

}  // namespace weft::cli
