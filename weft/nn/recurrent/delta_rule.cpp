#include "weft/nn/recurrent/delta_rule.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/kernels/select.h"

// Shape letters beside those of DeltaTokens: g = v / k, value heads of a key head; N chunks of C
// tokens; X = V + K. Chunks are computed as arXiv:2412.06464, section 3.3, has them.

namespace weft::nn {
namespace {

/// What is added to the square of a length, as in transformers.
constexpr double kLengthEps = 1e-6;
// Fewer tokens than these take as long one by one.
constexpr int64_t kFewTokens = 4;

void check_tokens(const DeltaTokens& in) {
  const auto& keys = in.keys_BTkK;
  const auto& values = in.values_BTvV;
  const bool fits =
      keys.dim() == 4 && values.dim() == 4 && in.queries_BTkK.sizes() == keys.sizes() &&
      keys.size(0) == values.size(0) && keys.size(1) == values.size(1) && keys.size(2) > 0 &&
      values.size(2) % keys.size(2) == 0 && in.decays_BTv.sizes() == values.sizes().slice(0, 3) &&
      in.rates_BTv.sizes() == values.sizes().slice(0, 3);
  core::check<core::ShapeError>(
      fits, "nn.delta_rule: queries ", core::list_text(in.queries_BTkK.sizes()), ", keys ",
      core::list_text(keys.sizes()), ", values ", core::list_text(values.sizes()), ", decays ",
      core::list_text(in.decays_BTv.sizes()), ", rates ", core::list_text(in.rates_BTv.sizes()),
      ", expected [B, T, k, K] twice, [B, T, v, V] and [B, T, v] twice, v a multiple of k");
}

at::Tensor of_length_one(const at::Tensor& x) {
  return x * at::rsqrt((x * x).sum(-1, true) + kLengthEps);
}

// The tokens in the type that is computed with, queries and keys of length one.
DeltaTokens prepared(const DeltaTokens& in) {
  const bool is_double = in.values_BTvV.scalar_type() == at::kDouble;
  const auto wide = [&](const at::Tensor& x) { return x.to(is_double ? at::kDouble : at::kFloat); };
  const double scale = 1 / std::sqrt(static_cast<double>(in.keys_BTkK.size(3)));
  return {of_length_one(wide(in.queries_BTkK)) * scale, of_length_one(wide(in.keys_BTkK)),
          wide(in.values_BTvV), wide(in.decays_BTv), wide(in.rates_BTv)};
}

at::Tensor first_state(const DeltaTokens& in, const at::Tensor& state_BvKV) {
  const auto& values = in.values_BTvV;
  const int64_t K = in.keys_BTkK.size(3);
  if (state_BvKV.defined()) return state_BvKV.to(values.scalar_type());
  return at::zeros({values.size(0), values.size(2), K, values.size(3)}, values.options());
}

// A key head for each value head.
at::Tensor for_values(const at::Tensor& x_BTkK, const DeltaTokens& in) {
  const int64_t each = in.values_BTvV.size(2) / in.keys_BTkK.size(2);
  return each == 1 ? x_BTkK : x_BTkK.repeat_interleave(each, 2);
}

at::Tensor stepped(const DeltaTokens& in, const at::Tensor& documents_BT,
                   const at::Tensor& state_BvKV) {
  const at::Tensor queries_BTvK = for_values(in.queries_BTkK, in);
  const at::Tensor keys_BTvK = for_values(in.keys_BTkK, in);
  const at::Tensor kept_BTv = at::exp(in.decays_BTv);
  at::Tensor S_BvKV = first_state(in, state_BvKV);
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < in.keys_BTkK.size(1); ++t) {
    const at::Tensor key_Bv1K = keys_BTvK.select(1, t).unsqueeze(2);
    at::Tensor kept_Bv11 = kept_BTv.select(1, t).unsqueeze(-1).unsqueeze(-1);
    if (documents_BT.defined() && t > 0) {
      const at::Tensor is_same_B = documents_BT.select(1, t) == documents_BT.select(1, t - 1);
      kept_Bv11 = kept_Bv11 * is_same_B.view({-1, 1, 1, 1}).to(kept_Bv11.scalar_type());
    }
    S_BvKV = S_BvKV * kept_Bv11;
    const at::Tensor rate_Bv11 = in.rates_BTv.select(1, t).unsqueeze(-1).unsqueeze(-1);
    const at::Tensor value_Bv1V = in.values_BTvV.select(1, t).unsqueeze(2);
    const at::Tensor written_Bv1V = (value_Bv1V - at::matmul(key_Bv1K, S_BvKV)) * rate_Bv11;
    S_BvKV = S_BvKV + key_Bv1K.transpose(2, 3) * written_Bv1V;
    outputs.push_back(at::matmul(queries_BTvK.select(1, t).unsqueeze(2), S_BvKV).squeeze(2));
  }
  if (state_BvKV.defined()) state_BvKV.copy_(S_BvKV.detach());
  return at::stack(outputs, 1);
}

// Whether a kernel takes the tokens: no gradients, one document, the type that it computes in.
bool has_kernel(const DeltaTokens& in, const at::Tensor& documents_BT,
                const at::Tensor& state_BvKV) {
  const auto is_plain = [](const at::Tensor& x) {
    return x.scalar_type() == at::kFloat && x.is_cpu() && x.stride(-1) == 1;
  };
  const bool has_state =
      !state_BvKV.defined() || (is_plain(state_BvKV) && state_BvKV.is_contiguous());
  return !at::GradMode::is_enabled() && !documents_BT.defined() && has_state &&
         is_plain(in.queries_BTkK) && is_plain(in.keys_BTkK) && is_plain(in.values_BTvV) &&
         is_plain(in.decays_BTv) && is_plain(in.rates_BTv);
}

// x_BTkK head by head, [B, k, T, K], of length `length`.
at::Tensor by_heads(const at::Tensor& x_BTkK, double length) {
  return (of_length_one(x_BTkK.transpose(1, 2)) * length).contiguous();
}

// A value head after the other, all tokens of it while its state is in the caches.
at::Tensor by_kernel(const DeltaTokens& in, const at::Tensor& state_BvKV) {
  const at::Tensor& values = in.values_BTvV;
  const int64_t B = values.size(0), T = values.size(1), v = values.size(2), V = values.size(3);
  const int64_t k = in.keys_BTkK.size(2), K = in.keys_BTkK.size(3);
  const at::Tensor queries = by_heads(in.queries_BTkK, 1 / std::sqrt(static_cast<double>(K)));
  const at::Tensor keys = by_heads(in.keys_BTkK, 1);
  const at::Tensor kept = at::exp(in.decays_BTv).contiguous(), rates = in.rates_BTv.contiguous();
  const at::Tensor state =
      state_BvKV.defined() ? state_BvKV : at::zeros({B, v, K, V}, values.options());
  at::Tensor out_BTvV = at::empty({B, T, v, V}, values.options());
  const auto run = kernels::active_kernel().delta;
  at::parallel_for(0, B * v, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / v, head = i % v, of_key = (b * k + head / (v / k)) * T * K;
      kernels::DeltaHead own;
      own.tokens = T;
      own.key_dim = K;
      own.value_dim = V;
      own.queries = queries.const_data_ptr<float>() + of_key;
      own.keys = keys.const_data_ptr<float>() + of_key;
      own.values = values.const_data_ptr<float>() + b * values.stride(0) + head * values.stride(2);
      own.value_stride = values.stride(1);
      own.kept = kept.const_data_ptr<float>() + b * T * v + head;
      own.rates = rates.const_data_ptr<float>() + b * T * v + head;
      own.number_stride = v;
      own.state = state.mutable_data_ptr<float>() + i * K * V;
      own.out = out_BTvV.mutable_data_ptr<float>() + (b * T * v + head) * V;
      own.out_stride = v * V;
      run(own);
    }
  });
  return out_BTvV;
}

// The tokens in chunks, key heads apart: [B, N, k, g, C, ...], g = 1 for queries and keys. Tokens
// that fill the last chunk change nothing: they write nothing and keep everything.
struct Chunks {
  at::Tensor queries, keys, values;
  // Sums of decays from the chunk's beginning, and rates: [..., C, 1].
  at::Tensor decays, rates;
  // Factors between tokens, [..., C, C], 0 where the second is later or of another document.
  at::Tensor between;
  // What is left of the state before the chunk at each token, and of each token behind the chunk:
  // [..., C, 1].
  at::Tensor of_before, of_end;
};

class Chunker {
 public:
  Chunker(const DeltaTokens& in, const at::Tensor& documents_BT, int64_t chunk)
      : in_(in), documents_BT_(documents_BT), chunk_(chunk) {
    tokens_ = in.keys_BTkK.size(1);
    padding_ = (chunk - tokens_ % chunk) % chunk;
  }

  Chunks chunks() const {
    Chunks all;
    all.queries = cut(in_.queries_BTkK);
    all.keys = cut(in_.keys_BTkK);
    all.values = cut(in_.values_BTvV);
    all.rates = cut(in_.rates_BTv.unsqueeze(-1));
    all.decays = at::cumsum(cut(in_.decays_BTv.unsqueeze(-1)), -2);
    add_factors(all);
    return all;
  }

 private:
  // x_BTnX as [B, N, k, n / k, C, X].
  at::Tensor cut(const at::Tensor& x_BTnX) const {
    const int64_t k = in_.keys_BTkK.size(2);
    const at::Tensor padded =
        padding_ == 0 ? x_BTnX : at::pad(x_BTnX, {0, 0, 0, 0, 0, padding_}, "constant", 0.0);
    return padded.view({x_BTnX.size(0), -1, chunk_, k, x_BTnX.size(2) / k, x_BTnX.size(3)})
        .permute({0, 1, 3, 4, 2, 5})
        .contiguous();
  }

  // exp(x), and 0 where it doesn't count: masked before, as differences the other way round are
  // large.
  static at::Tensor factors(const at::Tensor& x, const at::Tensor& counts) {
    return at::exp(x.masked_fill(counts.logical_not(), -std::numeric_limits<double>::infinity()));
  }

  void add_factors(Chunks& all) const {
    const at::Tensor lower =
        at::ones({chunk_, chunk_}, all.decays.options().dtype(at::kBool)).tril();
    const at::Tensor last = all.decays.narrow(-2, chunk_ - 1, 1);
    const at::Tensor differences = all.decays - all.decays.transpose(-1, -2);
    if (!documents_BT_.defined()) {
      all.between = factors(differences, lower);
      all.of_before = at::exp(all.decays);
      all.of_end = at::exp(last - all.decays);
      return;
    }
    const at::Tensor end_B1 = documents_BT_.narrow(1, tokens_ - 1, 1);
    const at::Tensor own = at::cat({documents_BT_, end_B1.expand({-1, padding_})}, 1)
                               .view({documents_BT_.size(0), -1, 1, 1, chunk_, 1});
    const at::Tensor ends = own.narrow(-2, chunk_ - 1, 1);
    // The state before the first chunk is of the first token's document.
    const at::Tensor before =
        at::cat({own.narrow(1, 0, 1).narrow(-2, 0, 1), ends.narrow(1, 0, ends.size(1) - 1)}, 1);
    all.between = factors(differences, lower.logical_and(own == own.transpose(-1, -2)));
    all.of_before = factors(all.decays, own == before);
    all.of_end = factors(last - all.decays, own == ends);
  }

  const DeltaTokens& in_;
  const at::Tensor& documents_BT_;
  int64_t chunk_;
  int64_t tokens_ = 0;
  int64_t padding_ = 0;
};

// What the tokens of each chunk write is the solution of triangular equations: for a state of
// zeros, and what a state before it takes away, [B, N, k, g, C, X].
at::Tensor solved(const Chunks& all) {
  const at::Tensor products = at::matmul(all.keys, all.keys.transpose(-1, -2));
  const at::Tensor lower_CC = (products * all.between * all.rates).tril(-1);
  const at::Tensor right =
      at::cat({all.values * all.rates, all.keys * all.of_before * all.rates}, -1);
  return at::linalg_solve_triangular(lower_CC, right, /*upper=*/false, /*left=*/true,
                                     /*unitriangular=*/true);
}

at::Tensor chunked(const DeltaTokens& in, const at::Tensor& documents_BT,
                   const at::Tensor& state_BvKV, int64_t chunk) {
  const Chunks all = Chunker(in, documents_BT, chunk).chunks();
  const at::Tensor solved_X = solved(all);
  const int64_t V = all.values.size(-1), K = all.keys.size(-1);
  const at::Tensor queries_CK = all.queries * all.of_before;
  const at::Tensor scores_CC = at::matmul(all.queries, all.keys.transpose(-1, -2)) * all.between;
  const at::Tensor keys_KC = (all.keys * all.of_end).transpose(-1, -2);
  const at::Tensor kept_11 = all.of_before.narrow(-2, chunk - 1, 1);
  const at::Tensor before_BvKV = first_state(in, state_BvKV);
  at::Tensor S_KV = before_BvKV.unflatten(1, {in.keys_BTkK.size(2), -1});
  std::vector<at::Tensor> outputs;
  for (int64_t n = 0; n < all.values.size(1); ++n) {
    const at::Tensor own_CX = solved_X.select(1, n);
    const at::Tensor written_CV =
        own_CX.narrow(-1, 0, V) - at::matmul(own_CX.narrow(-1, V, K), S_KV);
    outputs.push_back(at::matmul(queries_CK.select(1, n), S_KV) +
                      at::matmul(scores_CC.select(1, n), written_CV));
    S_KV = S_KV * kept_11.select(1, n) + at::matmul(keys_KC.select(1, n), written_CV);
  }
  if (state_BvKV.defined()) state_BvKV.copy_(S_KV.detach().flatten(1, 2));
  // [B, N, k, g, C, V] to [B, T, v, V].
  return at::stack(outputs, 1)
      .permute({0, 1, 4, 2, 3, 5})
      .flatten(3, 4)
      .flatten(1, 2)
      .narrow(1, 0, in.values_BTvV.size(1));
}

}  // namespace

at::Tensor delta_rule_by_steps(const DeltaTokens& tokens, const at::Tensor& documents_BT,
                               const at::Tensor& state_BvKV) {
  check_tokens(tokens);
  return stepped(prepared(tokens), documents_BT, state_BvKV).to(tokens.values_BTvV.scalar_type());
}

at::Tensor delta_rule(const DeltaTokens& tokens, const at::Tensor& documents_BT,
                      const at::Tensor& state_BvKV, int64_t chunk) {
  check_tokens(tokens);
  core::check<core::ShapeError>(chunk >= 1, "nn.delta_rule: chunks of ", chunk,
                                " tokens, expected at least 1");
  if (has_kernel(tokens, documents_BT, state_BvKV)) return by_kernel(tokens, state_BvKV);
  const int64_t count = tokens.keys_BTkK.size(1);
  if (count < kFewTokens) return delta_rule_by_steps(tokens, documents_BT, state_BvKV);
  return chunked(prepared(tokens), documents_BT, state_BvKV, std::min(chunk, count))
      .to(tokens.values_BTvV.scalar_type());
}

}  // namespace weft::nn
