#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "weft/models/model.h"

namespace weft::test {

/// `of` what the last layer gives for each piece, for tokens that are read in pieces of these
/// sizes.
template <class Function>
at::Tensor of_pieces(models::CausalLM& model, const at::Tensor& ids_BT,
                     const std::vector<int64_t>& pieces, Function&& of) {
  nn::KvCache cache = model.make_cache(ids_BT.size(0), ids_BT.size(1));
  std::vector<at::Tensor> parts;
  for (const int64_t tokens : pieces) {
    parts.push_back(of(model.forward(ids_BT.narrow(1, cache.length(), tokens), &cache)));
  }
  return at::cat(parts, 1);
}

/// What the last layer gives for tokens that are read in pieces of these sizes.
inline at::Tensor in_pieces(models::CausalLM& model, const at::Tensor& ids_BT,
                            const std::vector<int64_t>& pieces) {
  return of_pieces(model, ids_BT, pieces, [](const at::Tensor& x_BTD) { return x_BTD; });
}

/// All logits of tokens that are read in pieces of these sizes.
inline at::Tensor logits_in_pieces(models::CausalLM& model, const at::Tensor& ids_BT,
                                   const std::vector<int64_t>& pieces) {
  return of_pieces(model, ids_BT, pieces,
                   [&](const at::Tensor& x_BTD) { return model.logits(x_BTD); });
}

}  // namespace weft::test
