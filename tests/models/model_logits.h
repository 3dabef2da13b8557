#pragma once

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "weft/models/model.h"

namespace weft::test {

/// Logits [tokens, vocabulary] of one sequence.
inline at::Tensor logits_of(models::CausalLM& model, const at::Tensor& ids_BT,
                            nn::KvCache* cache = nullptr) {
  const c10::InferenceMode inference;
  return model.logits(model.forward(ids_BT, cache)).squeeze(0);
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace weft::test
