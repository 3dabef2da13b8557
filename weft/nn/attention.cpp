#include "weft/nn/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>

#include <optional>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

// Every kv head is read by the same number of neighbouring query heads: true unless kv heads are
// replicated unevenly.
bool is_uniform(const std::vector<int64_t>& kv_of_head, int64_t num_kv) {
  const auto heads = static_cast<int64_t>(kv_of_head.size());
  if (heads % num_kv != 0) return false;
  for (int64_t head = 0; head < heads; ++head) {
    if (kv_of_head[head] != head / (heads / num_kv)) return false;
  }
  return true;
}

// One token reads everything before it, so a kv head's query heads can stand as if they were
// tokens: no mask and no copy of k and v.
at::Tensor attend_one_token(const at::Tensor& q_Bn1H, const at::Tensor& k_BkSH,
                            const at::Tensor& v_BkSH) {
  const int64_t batch = q_Bn1H.size(0), heads = q_Bn1H.size(1), dim = q_Bn1H.size(3);
  const int64_t num_kv = k_BkSH.size(1);
  const at::Tensor q_BkgH = q_Bn1H.reshape({batch, num_kv, heads / num_kv, dim});
  return at::scaled_dot_product_attention(q_BkgH, k_BkSH, v_BkSH).reshape({batch, 1, heads * dim});
}

std::optional<at::Tensor> causal_mask(int64_t tokens, int64_t positions) {
  const at::Tensor column = at::arange(positions).unsqueeze(0);
  const at::Tensor row = at::arange(positions - tokens, positions).unsqueeze(1);
  return column <= row;
}

}  // namespace

at::Tensor grouped_query_attention(const at::Tensor& q_BnTH, const at::Tensor& k_BkSH,
                                   const at::Tensor& v_BkSH,
                                   const std::vector<int64_t>& kv_of_head) {
  const int64_t tokens = q_BnTH.size(2), positions = k_BkSH.size(2);
  core::check<core::ShapeError>(
      static_cast<int64_t>(kv_of_head.size()) == q_BnTH.size(1) && tokens <= positions,
      "nn.grouped_query_attention: q ", core::list_text(q_BnTH.sizes()), " and k ",
      core::list_text(k_BkSH.sizes()), " with ", kv_of_head.size(), " heads mapped");
  const bool uniform = is_uniform(kv_of_head, k_BkSH.size(1));
  if (tokens == 1 && uniform) return attend_one_token(q_BnTH, k_BkSH, v_BkSH);
  const at::Tensor map = at::tensor(kv_of_head, at::kLong);
  const at::Tensor k_BnSH = k_BkSH.index_select(1, map);
  const at::Tensor v_BnSH = v_BkSH.index_select(1, map);
  const bool is_causal = tokens > 1 && tokens == positions;
  const auto mask = is_causal || tokens == 1 ? std::nullopt : causal_mask(tokens, positions);
  const at::Tensor y_BnTH =
      at::scaled_dot_product_attention(q_BnTH, k_BnSH, v_BnSH, mask, 0.0, is_causal);
  return y_BnTH.transpose(1, 2).flatten(2);
}

}  // namespace weft::nn
