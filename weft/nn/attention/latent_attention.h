#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>

namespace weft::nn {

/// The sizes of a head in latent attention, where keys and values of all heads are made of one
/// latent, and some features of the keys, which rope turns, are the same for all heads. Source:
/// DeepSeek V2, arXiv:2405.04434, section 2.1.
///
/// Shape letters here: R the latent's features, P those that rope turns, N a key's others, V a
/// value's; n this rank's heads, T tokens, S positions.
struct LatentHeads {
  int64_t rank = 0;
  int64_t rope_dim = 0;
  int64_t plain_dim = 0;
  int64_t value_dim = 0;
  /// What scores are multiplied by before the softmax; 0: 1 / sqrt(N + P).
  double scale = 0;

  int64_t key_dim() const { return plain_dim + rope_dim; }
  double score_scale() const {
    return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(key_dim()));
  }
  /// Of a latent and the turned features beside it.
  int64_t kept_dim() const { return rank + rope_dim; }
};

/// Causal attention by keys and values of each head: for many queries. q_BTnH are the last T of S
/// positions, H = N + P, the last P turned; kv_BSf has each head's N key features, then its V value
/// features (f = n (N + V)); k_BSP the turned key features.
/// `documents_BS`: as in grouped_query_attention. Returns [B, T, n V].
/// Throws ShapeError when they don't fit.
at::Tensor expanded_latent_attention(const at::Tensor& q_BTnH, const at::Tensor& kv_BSf,
                                     const at::Tensor& k_BSP, const LatentHeads& heads,
                                     const at::Tensor& documents_BS = {});

/// The same for few queries, without making keys and values: what makes keys is multiplied with
/// the query, and what makes values with the mean of the latents. kept_BSc: the latents, and beside
/// each the turned key features (c = R + P). weight_fR: what makes kv_BSf of latents. Returns
/// [B, T, n V]. Throws ShapeError when they don't fit.
at::Tensor absorbed_latent_attention(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                                     const at::Tensor& weight_fR, const LatentHeads& heads);

/// The same of each token and head by itself, with the bits that it has whichever others there are
/// (nn::attend_each). All float32; without gradients.
at::Tensor latent_attention_each(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                                 const at::Tensor& weight_fR, const LatentHeads& heads);

}  // namespace weft::nn
