#include "weft/nn/attention/attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
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
                            const at::Tensor& v_BkSH, std::optional<double> scale) {
  const int64_t batch = q_Bn1H.size(0), heads = q_Bn1H.size(1), dim = q_Bn1H.size(3);
  const int64_t num_kv = k_BkSH.size(1);
  const at::Tensor q_BkgH = q_Bn1H.reshape({batch, num_kv, heads / num_kv, dim});
  return at::scaled_dot_product_attention(q_BkgH, k_BkSH, v_BkSH, {}, 0.0, false, scale)
      .reshape({batch, 1, heads * v_BkSH.size(3)});
}

// Each of the last `tokens` of `positions` sees itself and the positions before it, within the
// window.
at::Tensor causal_mask(int64_t tokens, int64_t positions, int64_t window) {
  const at::Tensor column = at::arange(positions).unsqueeze(0);
  const at::Tensor row = at::arange(positions - tokens, positions).unsqueeze(1);
  const at::Tensor is_before = column <= row;
  return window == 0 ? is_before : at::logical_and(is_before, column > row - window);
}

// Whether query and key are of the same document: [B, 1, T, S].
at::Tensor document_mask(const at::Tensor& documents_BS, int64_t tokens) {
  const at::Tensor own_BT = documents_BS.narrow(1, documents_BS.size(1) - tokens, tokens);
  return (own_BT.unsqueeze(2) == documents_BS.unsqueeze(1)).unsqueeze(1);
}

// Copies, for each query head, the kv head that it reads.
at::Tensor for_heads(const at::Tensor& x_BkSH, const std::vector<int64_t>& kv_of_head) {
  return x_BkSH.index_select(1, at::tensor(kv_of_head, at::kLong));
}

// The softmax over scores and a head's sink, whose own share is left out.
at::Tensor shares_beside_sinks(const at::Tensor& scores_BnTS, const at::Tensor& sinks_n) {
  const at::Tensor sinks_BnT1 = sinks_n.to(scores_BnTS.scalar_type())
                                    .view({1, -1, 1, 1})
                                    .expand({scores_BnTS.size(0), -1, scores_BnTS.size(2), 1});
  return at::softmax(at::cat({scores_BnTS, sinks_BnT1}, -1), -1)
      .narrow(-1, 0, scores_BnTS.size(-1));
}

// What libtorch's attention has no caps and sinks for, in float32 or float64. k and v are there for
// each query head; mask: what is seen.
at::Tensor attend_by_steps(const at::Tensor& q_BnTH, const at::Tensor& k_BnSH,
                           const at::Tensor& v_BnSH, const AttentionSpec& spec,
                           const at::Tensor& mask) {
  const auto type = q_BnTH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor scores_BnTS =
      at::matmul(q_BnTH.to(type), k_BnSH.to(type).transpose(2, 3)) * spec.scale_for(q_BnTH.size(3));
  if (spec.cap != 0) scores_BnTS = at::tanh(scores_BnTS / spec.cap) * spec.cap;
  scores_BnTS =
      scores_BnTS.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor shares_BnTS = spec.sinks.defined() ? shares_beside_sinks(scores_BnTS, spec.sinks)
                                                      : at::softmax(scores_BnTS, -1);
  return at::matmul(shares_BnTS, v_BnSH.to(type)).to(q_BnTH.scalar_type());
}

}  // namespace

at::Tensor grouped_query_attention(const at::Tensor& q_BnTH, const at::Tensor& k_BkSH,
                                   const at::Tensor& v_BkSH, const AttentionSpec& spec,
                                   const at::Tensor& documents_BS) {
  const std::vector<int64_t>& kv_of_head = spec.kv_of_head;
  const int64_t window = spec.window;
  const int64_t tokens = q_BnTH.size(2), positions = k_BkSH.size(2);
  core::check<core::ShapeError>(
      static_cast<int64_t>(kv_of_head.size()) == q_BnTH.size(1) && tokens <= positions,
      "nn.grouped_query_attention: q ", core::list_text(q_BnTH.sizes()), " and k ",
      core::list_text(k_BkSH.sizes()), " with ", kv_of_head.size(), " heads mapped");
  core::check<core::ShapeError>(
      !spec.sinks.defined() || spec.sinks.numel() == q_BnTH.size(1),
      "nn.grouped_query_attention: ", spec.sinks.defined() ? spec.sinks.numel() : 0,
      " sinks, expected ", q_BnTH.size(1), " as q has heads");
  core::check<core::ShapeError>(window >= 0, "nn.grouped_query_attention: window ", window,
                                ", expected at least 1, or 0 for all positions");
  core::check<core::ShapeError>(
      !documents_BS.defined() ||
          (documents_BS.scalar_type() == at::kLong &&
           documents_BS.sizes() == at::IntArrayRef({q_BnTH.size(0), positions})),
      "nn.grouped_query_attention: documents ",
      documents_BS.defined() ? core::list_text(documents_BS.sizes()) : "", ", expected int64 [",
      q_BnTH.size(0), ", ", positions, "]");
  // What the first query does not see any more, none does.
  const int64_t seen = window == 0 ? positions : std::min(positions, tokens - 1 + window);
  if (seen < positions) {
    const int64_t first = positions - seen;
    return grouped_query_attention(
        q_BnTH, k_BkSH.narrow(2, first, seen), v_BkSH.narrow(2, first, seen), spec,
        documents_BS.defined() ? documents_BS.narrow(1, first, seen) : documents_BS);
  }
  const bool is_packed = documents_BS.defined();
  // None: libtorch's own, which is the same.
  const std::optional<double> scale =
      spec.scale == 0 ? std::nullopt : std::optional<double>(spec.scale);
  const bool is_plain = spec.cap == 0 && !spec.sinks.defined();
  if (is_plain && tokens == 1 && !is_packed && is_uniform(kv_of_head, k_BkSH.size(1))) {
    return attend_one_token(q_BnTH, k_BkSH, v_BkSH, scale);
  }
  const bool is_windowed = window != 0 && window < positions;
  const bool is_causal =
      is_plain && tokens > 1 && tokens == positions && !is_windowed && !is_packed;
  std::optional<at::Tensor> mask;
  if (!is_causal && (!is_plain || tokens > 1 || is_packed)) {
    mask = causal_mask(tokens, positions, is_windowed ? window : 0);
  }
  if (is_packed) mask = at::logical_and(*mask, document_mask(documents_BS, tokens));
  const at::Tensor k_BnSH = for_heads(k_BkSH, kv_of_head), v_BnSH = for_heads(v_BkSH, kv_of_head);
  const at::Tensor y_BnTH = is_plain ? at::scaled_dot_product_attention(q_BnTH, k_BnSH, v_BnSH,
                                                                        mask, 0.0, is_causal, scale)
                                     : attend_by_steps(q_BnTH, k_BnSH, v_BnSH, spec, *mask);
  return y_BnTH.transpose(1, 2).flatten(2);
}

}  // namespace weft::nn
