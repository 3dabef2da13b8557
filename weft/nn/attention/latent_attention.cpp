#include "weft/nn/attention/latent_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/attention/attend_each.h"
#include "weft/nn/attention/attention.h"

namespace weft::nn {
namespace {

using core::check;
using core::list_text;
using core::ShapeError;

void check_queries(const at::Tensor& q, const LatentHeads& heads, const char* where) {
  check<ShapeError>(q.dim() == 4 && q.size(3) == heads.key_dim(), where, ": queries ",
                    list_text(q.sizes()), ", expected [B, T, heads, ", heads.key_dim(), "]");
}

void check_absorbed(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                    const at::Tensor& weight_fR, const LatentHeads& heads, const char* where) {
  check_queries(q_BTnH, heads, where);
  const int64_t features = q_BTnH.size(2) * (heads.plain_dim + heads.value_dim);
  check<ShapeError>(kept_BSc.dim() == 3 && kept_BSc.size(2) == heads.kept_dim() &&
                        weight_fR.dim() == 2 && weight_fR.size(0) == features &&
                        weight_fR.size(1) == heads.rank,
                    where, ": latents ", list_text(kept_BSc.sizes()), " with a weight ",
                    list_text(weight_fR.sizes()), ", expected [B, S, ", heads.kept_dim(), "] and [",
                    features, ", ", heads.rank, "]");
}

// Of scores of N + P features, whatever the sizes that are computed with.
AttentionSpec spec_of(const LatentHeads& heads, std::vector<int64_t> kv_of_head) {
  AttentionSpec spec;
  spec.kv_of_head = std::move(kv_of_head);
  spec.scale = heads.score_scale();
  return spec;
}

std::vector<int64_t> each_its_own(int64_t num_heads) {
  std::vector<int64_t> numbers(static_cast<size_t>(num_heads));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Every eighth product by itself, so that the loop takes vectors.
float dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<float, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += a[i] * b[i];
  return std::accumulate(lanes.begin(), lanes.end(), 0.F);
}

// Calls use(where its rows of the weight begin, a row of x, a row of a new tensor of `width`
// features) for every token's heads. Returns that tensor, [B, T, n, width].
template <class Use>
at::Tensor of_each(const at::Tensor& x_BTna, const at::Tensor& weight_fR, int64_t width,
                   Use&& use) {
  const int64_t n = x_BTna.size(2), from_width = x_BTna.size(3);
  const int64_t head_numbers = weight_fR.numel() / n;
  at::Tensor y = at::empty({x_BTna.size(0), x_BTna.size(1), n, width}, at::kFloat);
  const auto *x = x_BTna.const_data_ptr<float>(), *w = weight_fR.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, y.numel() / width, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      use(w + row % n * head_numbers, x + row * from_width, to + row * width);
    }
  });
  return y;
}

// Each head's rows by its own matrix; the batch is no dim of the product, or matrices would be
// copied for it.
at::Tensor times_each(const at::Tensor& x_BnTa, const at::Tensor& weight_nab) {
  const at::Tensor rows_nSa = x_BnTa.transpose(0, 1).flatten(1, 2);
  return at::bmm(rows_nSa, weight_nab)
      .unflatten(1, {x_BnTa.size(0), x_BnTa.size(2)})
      .transpose(0, 1);
}

}  // namespace

at::Tensor expanded_latent_attention(const at::Tensor& q_BTnH, const at::Tensor& kv_BSf,
                                     const at::Tensor& k_BSP, const LatentHeads& heads,
                                     const at::Tensor& documents_BS) {
  constexpr const char* kWhere = "nn.expanded_latent_attention";
  check_queries(q_BTnH, heads, kWhere);
  const int64_t n = q_BTnH.size(2), each = heads.plain_dim + heads.value_dim;
  check<ShapeError>(kv_BSf.dim() == 3 && kv_BSf.size(2) == n * each && k_BSP.dim() == 3 &&
                        k_BSP.size(1) == kv_BSf.size(1) && k_BSP.size(2) == heads.rope_dim,
                    kWhere, ": keys and values ", list_text(kv_BSf.sizes()), " with turned keys ",
                    list_text(k_BSP.sizes()), ", expected [B, S, ", n * each, "] and [B, S, ",
                    heads.rope_dim, "]");
  const at::Tensor kv_BnSe = kv_BSf.unflatten(-1, {n, each}).transpose(1, 2);
  const at::Tensor k_BnSP = k_BSP.unsqueeze(1).expand({-1, n, -1, -1});
  const at::Tensor k_BnSH = at::cat({kv_BnSe.narrow(-1, 0, heads.plain_dim), k_BnSP}, -1);
  const at::Tensor v_BnSV = kv_BnSe.narrow(-1, heads.plain_dim, heads.value_dim);
  return grouped_query_attention(q_BTnH.transpose(1, 2), k_BnSH, v_BnSV,
                                 spec_of(heads, each_its_own(n)), documents_BS);
}

at::Tensor absorbed_latent_attention(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                                     const at::Tensor& weight_fR, const LatentHeads& heads) {
  check_absorbed(q_BTnH, kept_BSc, weight_fR, heads, "nn.absorbed_latent_attention");
  const int64_t n = q_BTnH.size(2), each = heads.plain_dim + heads.value_dim;
  const at::Tensor weight_neR = weight_fR.unflatten(0, {n, each});
  const at::Tensor q_BnTH = q_BTnH.transpose(1, 2);
  const at::Tensor q_BnTR =
      times_each(q_BnTH.narrow(-1, 0, heads.plain_dim), weight_neR.narrow(1, 0, heads.plain_dim));
  const at::Tensor q_BnTc =
      at::cat({q_BnTR, q_BnTH.narrow(-1, heads.plain_dim, heads.rope_dim)}, -1);
  const at::Tensor kept_B1Sc = kept_BSc.unsqueeze(1);
  const std::vector<int64_t> all_one(static_cast<size_t>(n), 0);
  const at::Tensor mean_BTf = grouped_query_attention(
      q_BnTc, kept_B1Sc, kept_B1Sc.narrow(-1, 0, heads.rank), spec_of(heads, all_one));
  const at::Tensor mean_BnTR = mean_BTf.unflatten(-1, {n, heads.rank}).transpose(1, 2);
  const at::Tensor weight_nRV =
      weight_neR.narrow(1, heads.plain_dim, heads.value_dim).transpose(1, 2);
  return times_each(mean_BnTR, weight_nRV).transpose(1, 2).flatten(2);
}

at::Tensor latent_attention_each(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                                 const at::Tensor& weight_fR, const LatentHeads& heads) {
  check_absorbed(q_BTnH, kept_BSc, weight_fR, heads, "nn.latent_attention_each");
  const int64_t N = heads.plain_dim, R = heads.rank, P = heads.rope_dim, n = q_BTnH.size(2);
  const at::Tensor weight = weight_fR.contiguous();
  const auto to_latent = [&](const float* w, const float* q, float* y) {
    std::fill_n(y, R, 0.F);
    for (int64_t i = 0; i < N; ++i, w += R) {
      for (int64_t r = 0; r < R; ++r) y[r] += q[i] * w[r];
    }
    std::copy_n(q + N, P, y + R);
  };
  const at::Tensor q_BTnc = of_each(q_BTnH.contiguous(), weight, R + P, to_latent);
  const at::Tensor kept_B1Sc = kept_BSc.unsqueeze(1);
  const std::vector<int64_t> all_one(static_cast<size_t>(n), 0);
  // Of what is kept, the turned features have a mean, too, which nobody reads.
  const at::Tensor mean_BTnc =
      attend_each(q_BTnc, kept_B1Sc, kept_B1Sc, spec_of(heads, all_one)).unflatten(-1, {n, R + P});
  const auto to_values = [&](const float* w, const float* mean, float* y) {
    for (int64_t i = 0; i < heads.value_dim; ++i) y[i] = dot(w + (N + i) * R, mean, R);
  };
  return of_each(mean_BTnc, weight, heads.value_dim, to_values).flatten(2);
}

}  // namespace weft::nn
