#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "weft/models/model.h"

namespace weft::generate {

/// The new tokens of several sequences, and how long they took.
struct BatchResult {
  /// int64 [B, new tokens].
  at::Tensor tokens_BT;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

/// Decides after each step whether to continue; asked on rank 0 alone.
using GoesOn = std::function<bool()>;

/// Continues the sequences in prompts_BT, int64 [B, T], equal on all ranks, by `new_tokens` tokens
/// each, one of every sequence per pass, always the likeliest; fewer once `goes_on` is false.
/// Sequences continue past end-of-text. Collective. Throws ConfigError for prompts without a token
/// or tokens outside of the vocabulary or the model's positions.
BatchResult generate_batch(models::CausalLM& model, const at::Tensor& prompts_BT,
                           int64_t new_tokens, const GoesOn& goes_on);

}  // namespace weft::generate
