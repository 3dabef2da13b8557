#include "weft/models/passes/mixers/fused_latent.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "weft/core/profile.h"
#include "weft/models/passes/fused_attention.h"
#include "weft/models/passes/mixers/latent_rows.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/view.h"

namespace weft::models {
namespace {

using quant::kernels::kBlockColumns;
using quant::kernels::kPanelRows;

// Parts of heads have to be whole panels as rows and whole blocks as columns, whichever heads a
// rank has: all ranks choose the same way.
bool fits_heads(const nn::LatentHeads& heads) {
  return heads.plain_dim % kBlockColumns == 0 && heads.value_dim % kBlockColumns == 0 &&
         heads.rank % kBlockColumns == 0 && heads.rope_dim % 2 == 0;
}

// Plain numbers stay in their type, codes become what they stand for.
at::ScalarType plain_type_of(const quant::kernels::PanelForm& form) {
  using quant::kernels::PanelNumbers;
  switch (form.numbers) {
    case PanelNumbers::kFloat16:
      return at::kHalf;
    case PanelNumbers::kBFloat16:
    case PanelNumbers::kShortBFloat16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

// The keys' part of key_value [n (N + V), R], the other way round: [n R, N]. A copy, which the
// model's memory has beside the matrix.
quant::PanelMatrix transposed_keys(const quant::PanelMatrix& key_value,
                                   const nn::LatentHeads& heads) {
  const at::Tensor all_neR =
      quant::panel_values(key_value).unflatten(0, {-1, heads.plain_dim + heads.value_dim});
  const at::Tensor keys_nRN = all_neR.narrow(1, 0, heads.plain_dim).transpose(1, 2);
  quant::PanelMatrix matrix = quant::to_panels(
      keys_nRN.flatten(0, 1).to(plain_type_of(key_value.form)).contiguous(),
      key_value.is_exact ? quant::HalfPanels::kPlain : quant::HalfPanels::kShortest);
  matrix.is_exact = key_value.is_exact;
  return matrix;
}

at::Tensor floats_of(const at::Tensor& weight) {
  return weight.detach().to(at::kFloat).contiguous();
}

void norm_latent(const at::Tensor& weight, const float* x, float* y) {
  float scale = 0;
  nn::kernels::active_kernel().float32.norm({1, weight.size(0), static_cast<float>(kLatentNormEps),
                                             x, weight.const_data_ptr<float>(), y, &scale});
}

}  // namespace

void FusedLatent::Layer::take_heads(const nn::LatentHeads& own,
                                    std::shared_ptr<nn::PanelLinearImpl> linear,
                                    const at::Tensor& weight) {
  heads = own;
  key_value_linear = std::move(linear);
  key_value = quant::PanelView(key_value_linear->weight);
  num_heads = key_value_linear->out_features() / (heads.plain_dim + heads.value_dim);
  absorbing = transposed_keys(key_value_linear->weight, heads);
  kv_norm = floats_of(weight);
}

std::optional<FusedLatent::Layer> FusedLatent::take(const LatentAttentionLayerImpl& layer,
                                                    HeldLinears& held) {
  const LatentAttentionParts& parts = layer.parts();
  if (!fits_heads(parts.heads)) return std::nullopt;
  Layer taken;
  // Null where it is not in panels.
  const auto panels_of = [&](const auto& module) {
    auto linear = held.take_any<nn::PanelLinearImpl>(*module);
    return linear == nullptr || linear->bias.defined() ? nullptr : std::move(linear);
  };
  const auto take_linear = [&](const auto& module, quant::PanelView& view) {
    const auto linear = panels_of(module);
    if (linear == nullptr) return false;
    view = quant::PanelView(linear->weight);
    taken.linears.push_back(linear);
    return true;
  };
  auto key_value = panels_of(parts.key_value);
  bool has_all = key_value != nullptr && !parts.output->bias.defined() &&
                 take_linear(parts.query, taken.query) &&
                 take_linear(parts.kv_latent, taken.kv_latent) &&
                 take_linear(parts.output, taken.output);
  if (!parts.query_latent.is_empty()) {
    has_all = has_all && take_linear(parts.query_latent, taken.query_latent);
    taken.query_norm = floats_of(parts.query_norm->whole_weight());
  }
  if (!has_all) return std::nullopt;
  taken.take_heads(parts.heads, std::move(key_value), parts.kv_norm->whole_weight());
  return taken;
}

void FusedLatent::add_wants(const Layer& layer) {
  query_inputs_.add_wants(quant::PanelInputs::Wants::of(layer.absorbing));
  latent_inputs_.add_wants(quant::PanelInputs::Wants::of(layer.key_value_linear->weight));
}

const float* FusedLatent::normed_query_latent(const Layer& layer, int64_t row, float* room) const {
  norm_latent(layer.query_norm, query_latents.row(row), room);
  return room;
}

const float* FusedLatent::run(const Layer& layer, const Call& call) {
  out_.make_room(call.rows() * layer.num_heads * layer.heads.value_dim);
  {
    const core::Profiled profiled("attention");
    turn(layer, call);
  }
  if (expands(layer, call)) {
    attend_expanded(layer, call);
    return out_.data();
  }
  absorb_queries(layer, call);
  attend_latents(layer, call);
  make_values(layer, call);
  return out_.data();
}

// Making keys and values costs a product with each position's latent, and each query then reads
// fewer numbers of a position: the multiplications of both ways for a head.
bool FusedLatent::expands(const Layer& layer, const Call& call) const {
  if (is_exact_ || call.tokens <= FusedAttention::kFewTokens) return false;
  const nn::LatentHeads& heads = layer.heads;
  const int64_t T = call.tokens, S = call.positions();
  const int64_t weights = heads.rank * (heads.plain_dim + heads.value_dim);
  const int64_t expanded = S * weights + T * S * (heads.key_dim() + heads.value_dim);
  const int64_t absorbed = T * weights + T * S * (heads.kept_dim() + heads.rank);
  return expanded <= absorbed;
}

// Queries are turned and scaled; normed latents and turned keys go to the cache.
void FusedLatent::turn(const Layer& layer, const Call& call) {
  const nn::LatentHeads& heads = layer.heads;
  const Turns turns(call.angles);
  const int64_t H = heads.key_dim(), features = layer.num_heads * H;
  const auto scale = static_cast<float>(heads.score_scale());
  for_rows(call.rows(), features + heads.kept_dim(), [&](int64_t row) {
    const int64_t sequence = row / call.tokens, token = row % call.tokens;
    const int64_t angle = call.has_own_caches() ? sequence : token;
    float *const q = queries.row(row), *const kept = latents.row(row);
    for (int64_t head = 0; head < layer.num_heads; ++head) {
      turns.apply(angle, q + head * H + heads.plain_dim);
    }
    for (int64_t i = 0; i < features; ++i) q[i] *= scale;
    norm_latent(layer.kv_norm, kept, kept);
    turns.apply(angle, kept + heads.rank);
    LatentRows(call, sequence, heads).write(kept, call.start(sequence) + token);
  });
}

// Rows of each head together, which a matrix of its own multiplies.
template <class RowOf>
void FusedLatent::take_by_head(const Layer& layer, const Call& call, int64_t in,
                               quant::PanelInputs& inputs, RowOf&& row_of) {
  const int64_t rows = call.rows();
  starts_.clear();
  for (int64_t head = 0; head < layer.num_heads; ++head) starts_.push_back(head * rows);
  inputs.take(quant::kernels::active_panel_kernel(),
              {layer.num_heads * rows, in, call.tokens, 0, starts_},
              [&](int64_t i, float* /*room*/) { return row_of(i % rows, i / rows); });
}

// The queries' plain features become features of latents.
void FusedLatent::absorb_queries(const Layer& layer, const Call& call) {
  const core::Profiled profiled("keys, values");
  const nn::LatentHeads& heads = layer.heads;
  const int64_t c = heads.kept_dim(), H = heads.key_dim(), n = layer.num_heads;
  float* const absorbed = absorbed_.make_room(call.rows() * n * c);
  take_by_head(layer, call, heads.plain_dim, query_inputs_,
               [&](int64_t row, int64_t head) { return queries.row(row) + head * H; });
  const quant::PanelView all(layer.absorbing);
  products_.clear();
  for (int64_t head = 0; head < n; ++head) {
    products_.push_back(
        {all.rows(head * heads.rank, heads.rank), absorbed + head * c, n * c, head});
  }
  quant::multiply(quant::kernels::active_panel_kernel(), query_inputs_, products_);
  for (int64_t row = 0; row < call.rows(); ++row) {
    for (int64_t head = 0; head < n; ++head) {
      std::copy_n(queries.row(row) + head * H + heads.plain_dim, heads.rope_dim,
                  absorbed + (row * n + head) * c + heads.rank);
    }
  }
}

// All heads' queries against what is kept, of whose means nobody reads the turned features.
void FusedLatent::attend_latents(const Layer& layer, const Call& call) {
  const core::Profiled profiled("attention");
  const nn::LatentHeads& heads = layer.heads;
  const int64_t c = heads.kept_dim(), n = layer.num_heads, most = call.positions();
  const auto& cache = cache_kernel_of(call.caches.front()->dtype());
  means_.make_room(call.rows() * n * c);
  const int64_t scores = nn::kernels::cached_scores(most);
  scores_.make_room(at::get_num_threads() * scores);
  at::parallel_for(0, call.rows() * n, quant::rows_per_thread(4 * most * c),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t task = begin, count = 0; task < end; task += count) {
                       const int64_t row = task / n, sequence = row / call.tokens;
                       count = std::min(n - task % n, end - task);
                       nn::kernels::CachedHead cached;
                       cached.queries = count;
                       cached.positions = call.start(sequence) + row % call.tokens + 1;
                       cached.head_dim = c;
                       cached.value_dim = heads.rank;
                       cached.q = absorbed_.data() + task * c;
                       cached.k = cached.v = LatentRows(call, sequence, heads).row(0);
                       cached.o = means_.data() + task * c;
                       cache.attend(cached, scores_.data() + at::get_thread_num() * scores);
                     }
                   });
}

// The means of latents become means of values.
void FusedLatent::make_values(const Layer& layer, const Call& call) {
  const core::Profiled profiled("keys, values");
  const nn::LatentHeads& heads = layer.heads;
  const int64_t c = heads.kept_dim(), V = heads.value_dim, n = layer.num_heads;
  take_by_head(layer, call, heads.rank, latent_inputs_,
               [&](int64_t row, int64_t head) { return means_.data() + (row * n + head) * c; });
  products_.clear();
  for (int64_t head = 0; head < n; ++head) {
    const int64_t first = head * (heads.plain_dim + V) + heads.plain_dim;
    products_.push_back({layer.key_value.rows(first, V), out_.data() + head * V, n * V, head});
  }
  quant::multiply(quant::kernels::active_panel_kernel(), latent_inputs_, products_);
}

}  // namespace weft::models
