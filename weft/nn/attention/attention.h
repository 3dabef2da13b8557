#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace weft::nn {

/// Causal grouped-query attention: softmax(q k^T / sqrt(H)) v.
/// q_BnTH are the last T of S positions; k_BkSH and v_BkSH are all S positions of this rank's kv
/// heads; `kv_of_head` says which of the k kv heads each of the n query heads reads, ascending.
/// `window`: how many positions a query sees, its own included, of those up to it; 0: all. Keys and
/// values before every query's window are not read.
/// `documents_BS`: int64 numbers; a query sees only positions of its own number. Undefined: all.
/// Returns [B, T, n * H]. Throws ShapeError when they don't fit.
/// Source: Ainslie et al. 2023, arXiv:2305.13245; window: Beltagy et al. 2020, arXiv:2004.05150.
at::Tensor grouped_query_attention(const at::Tensor& q_BnTH, const at::Tensor& k_BkSH,
                                   const at::Tensor& v_BkSH, const std::vector<int64_t>& kv_of_head,
                                   int64_t window = 0, const at::Tensor& documents_BS = {});

}  // namespace weft::nn
