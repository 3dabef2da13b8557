#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::nn {

/// What the gated delta rule reads of each token. Letters: B sequences, T tokens; k, v: key and
/// value heads, v a multiple of k, the first v / k value heads being those of the first key head;
/// K, V: the features of a key and of a value.
struct DeltaTokens {
  at::Tensor queries_BTkK;
  at::Tensor keys_BTkK;
  at::Tensor values_BTvV;
  /// The logarithms of what is kept of the state before the token, at most 0.
  at::Tensor decays_BTv;
  /// How much of the difference is written, 0 to 1.
  at::Tensor rates_BTv;
};

/// The most tokens of a prompt that are computed together.
inline constexpr int64_t kDeltaChunk = 64;

/// The gated delta rule. Each value head has a state S [K, V], zeros at first. For each token S is
/// multiplied by exp(decay), then gets rate * key (value - key S); the output is query S. Queries
/// and keys are divided by their lengths before, queries by the root of K as well. state_BvKV:
/// float32, what the tokens before have left, which these overwrite; undefined: zeros. Tokens see
/// none of another document (int64 [B, T], equal neighbours; undefined: each row is one). Computed
/// in float32 (float64 for float64): where gradients may be asked for, `chunk` tokens at a time by
/// products of matrices; else, of one document in float32, by a kernel, a token after the other, so
/// that a sequence has the same bits at once and in pieces.
/// Returns [B, T, v, V] of the values' type. Throws ShapeError for sizes that don't fit each other.
/// Nothing is collective. Source: Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464.
at::Tensor delta_rule(const DeltaTokens& tokens, const at::Tensor& documents_BT = {},
                      const at::Tensor& state_BvKV = {}, int64_t chunk = kDeltaChunk);

/// The same, one token after the other as the formula has it: what delta_rule is compared with, and
/// what it does for few tokens with gradients.
at::Tensor delta_rule_by_steps(const DeltaTokens& tokens, const at::Tensor& documents_BT = {},
                               const at::Tensor& state_BvKV = {});

}  // namespace weft::nn
