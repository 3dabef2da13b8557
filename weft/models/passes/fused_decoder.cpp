#include "weft/models/passes/fused_decoder.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/profile.h"
#include "weft/quant/kernels/panel_select.h"

// Shape letters: B batch, T tokens, D width. A row is one token of one sequence.

namespace weft::models {
namespace {

// Every eighth square by itself, so that the loop takes vectors.
float sum_of_squares(const float* x, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<float, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) lanes[lane] += x[i] * x[i];
  return std::accumulate(lanes.begin(), lanes.end(), 0.F);
}

float sum_of_squares(const float* x, const std::vector<shard::Range>& runs) {
  float sum = 0;
  for (const shard::Range& run : runs) sum += sum_of_squares(x + run.start, run.length);
  return sum;
}

void check_caches(std::span<nn::KvCache* const> caches, const at::Tensor& x_BTD) {
  int64_t sequences = 0;
  for (const nn::KvCache* cache : caches) {
    cache->check_room(x_BTD.size(1));
    sequences += cache->batch();
  }
  core::check<core::ConfigError>(sequences == x_BTD.size(0), "models.FusedDecoder: ", x_BTD.size(0),
                                 " sequences, expected ", sequences, " as the cache has");
}

}  // namespace

// Norms `rows` rows of norm.size numbers that lie end to end, in place.
void FusedDecoder::norm_in_place(const Vector& norm, float* x, int64_t rows) const {
  float scale = 0;
  for (int64_t row = 0; row < rows; ++row) {
    float* own = x + row * norm.size;
    elements().norm({1, norm.size, norm_eps_, own, norm.data, own, &scale});
  }
}

void FusedDecoder::add_bias(const Vector& bias, float* row) {
  if (bias.data != nullptr) elements().add(row, bias.data, row, bias.size);
}

bool FusedDecoder::takes(const nn::KvCache* cache) const {
  return cache != nullptr && cache->store() == nullptr && !at::GradMode::is_enabled() &&
         FusedAttention::reads_cache_of(cache->dtype());
}

int64_t FusedDecoder::most_as_alone() const {
  // Modules read a sequence's tokens together, and a state cannot go back by one.
  const bool goes_on_alone = std::ranges::any_of(layers_, [](const Layer& layer) {
    return layer.mixer != nullptr || layer.delta.has_value();
  });
  return goes_on_alone ? 1 : std::min(FusedAttention::kFewTokens, quant::PanelInputs::kExactRows);
}

nn::KvCache FusedDecoder::make_cache(const CacheRequest& request) const {
  nn::KvCache::Options options = cache_options_;
  options.batch = request.batch;
  options.capacity = request.capacity;
  options.dtype = request.dtype.value_or(options.dtype);
  return nn::KvCache(options);
}

at::Tensor FusedDecoder::run(const at::Tensor& x_BTD, const PassContext& context) {
  PassRows rows = begin(x_BTD, context);
  run_blocks(rows, context, {0, std::ssize(layers_)});
  return finish(rows);
}

PassRows FusedDecoder::begin(const at::Tensor& x_BTD, const PassContext& context) {
  const auto& one = context.cache;
  check_caches(one == nullptr ? context.caches : std::span(&one, 1), x_BTD);
  const int64_t rows = x_BTD.size(0) * x_BTD.size(1);
  low_rank_.begin(x_BTD.size(0), x_BTD.size(1));
  PassRows stream;
  // Adapters read rows that are not rounded, which ranks do not exchange.
  stream.own = is_exact_ || low_rank_.is_used()
                   ? RowCut{0, rows, rows, 0}
                   : RowCut::of(rows, width_, quant::PanelInputs::kRowRun, group_);
  stream.all_RD = at::empty({stream.own.room, width_});
  stream.x_BTD = stream.all_RD.narrow(0, 0, rows).view(x_BTD.sizes());
  stream.x_BTD.copy_(x_BTD);
  if (context.layer_inputs_BTLP.defined()) {
    stream.layer_inputs_BTLP = context.layer_inputs_BTLP.to(at::kFloat).contiguous();
  }
  return stream;
}

void FusedDecoder::run_blocks(PassRows& rows, const PassContext& context,
                              const shard::Range& blocks) {
  nn::KvCache* const shared = context.cache;
  at::Tensor& x = rows.x_BTD;
  low_rank_.begin(x.size(0), x.size(1));
  make_sums(rows.own);
  const Pass pass = {{x.size(0), x.size(1),
                      shared == nullptr ? context.caches : std::span(&shared, 1), context.starts},
                     &context,
                     &x,
                     x.mutable_data_ptr<float>(),
                     rows.own,
                     rows.layer_inputs_BTLP};
  for (int64_t index = blocks.start; index < blocks.end(); ++index) run_layer(pass, index);
}

at::Tensor FusedDecoder::finish(PassRows& rows) {
  const RowCut& own = rows.own;
  auto* const x = rows.x_BTD.mutable_data_ptr<float>();
  for_rows(own.count, width_,
           [&](int64_t row) { norm_in_place(last_norm_, x + (own.first + row) * width_, 1); });
  if (own.is_cut()) {
    group_.all_gather_into(rows.all_RD, rows.all_RD.narrow(0, own.each * group_.rank(), own.each));
  }
  return rows.x_BTD;
}

void FusedDecoder::make_sums(const RowCut& own) {
  if (!sum_.defined() || sum_.size(0) != own.room) sum_ = at::zeros({own.room, width_});
  if (!own.is_cut()) return;
  if (!own_sum_.defined() || own_sum_.size(0) != own.each) {
    own_sum_ = at::empty({own.each, width_});
  }
}

void FusedDecoder::run_layer(const Pass& pass, int64_t index) {
  const auto i = static_cast<size_t>(index);
  const Layer& layer = layers_[i];
  if (layer.mixer != nullptr) {
    mix(pass, layer);
  } else if (layer.delta) {
    run_delta(pass, layer, index);
  } else if (layer.latent) {
    run_latent(pass, layer, index);
  } else {
    attend(pass, index);
  }
  feed_forward(pass, layer);
  if (layer.input_norm.data != nullptr) add_input(pass, i);
  if (layer.factor != 1) scale(pass, layer);
}

// The rows that the next products are of.
void FusedDecoder::take(const Pass& pass, int64_t in, quant::PanelInputs::RowSource row_of) {
  const quant::kernels::PanelKernel& kernel = quant::kernels::active_panel_kernel();
  const quant::PanelInputs::Shape shape = {pass.rows(), in, pass.tokens};
  if (!low_rank_.is_used()) return inputs_.take(kernel, shape, row_of);
  low_rank_.begin_inputs(pass.rows(), in);
  inputs_.take(kernel, shape, [&](int64_t row, float* room) {
    return low_rank_.take_input(row, row_of(row, room));
  });
}

// x, normed where there is a norm before the layer, each row by the rank that has it.
void FusedDecoder::take_normed(const Pass& pass, const Vector& weight, quant::PanelInputs& inputs) {
  const core::Profiled profiled("norm");
  low_rank_.begin_inputs(pass.rows(), width_);
  const auto normed = [&](int64_t row, float* room) -> const float* {
    const float* const x = pass.x + row * width_;
    if (weight.data == nullptr) return low_rank_.take_input(row, x);
    float scale = 0;
    elements().norm({1, width_, norm_eps_, x, weight.data, room, &scale});
    return low_rank_.take_input(row, room);
  };
  const RowCut& own = pass.own;
  inputs.take_part(quant::kernels::active_panel_kernel(),
                   {pass.rows(), width_, pass.tokens, own.room}, own.first, own.count, normed);
  if (!own.is_cut()) return;
  for (const auto& [data, row_bytes] : inputs.memory()) {
    at::Tensor all = at::from_blob(data, {own.room, row_bytes}, at::kByte);
    group_.all_gather_into(all, all.narrow(0, own.each * group_.rank(), own.each));
  }
}

quant::PanelProduct FusedDecoder::product(const quant::PanelView& w, FloatRows& to) const {
  const int64_t stride = w.padded_out();
  return {w, to.of(inputs_.num_rows(), stride), stride};
}

void FusedDecoder::multiply(const char* part, std::span<const quant::PanelProduct> products) const {
  const core::Profiled profiled(part);
  quant::multiply(quant::kernels::active_panel_kernel(), inputs_, products);
}

void FusedDecoder::attend(const Pass& pass, int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  take_normed(pass, layer.attention_norms.before, inputs_);
  const std::array products = {product(layer.q, q_), product(layer.k, k_), product(layer.v, v_)};
  multiply("q, k, v", std::span(products).first(layer.num_projections));
  low_rank_.add(layer.adapters.q, q_.row(0), q_.stride());
  low_rank_.add(layer.adapters.k, k_.row(0), k_.stride());
  low_rank_.add(layer.adapters.v, v_.row(0), v_.stride());
  norm_heads(pass, layer);
  FusedAttention::Call call;
  static_cast<PassCaches&>(call) = pass;
  call.q = {q_.row(0), q_.stride(), layer.heads};
  call.k = {k_.row(0), k_.stride(), layer.kv_heads};
  call.v = {v_.row(0), v_.stride(), layer.kv_heads};
  if (layer.has_rope) call.angles = &pass.angles().of(layer.attention.window != 0);
  const at::Tensor& factors = pass.angles().query_factors;
  if (factors.defined()) call.query_factors = factors.const_data_ptr<float>();
  call.spec = &layer.attention;
  call.layer = layer.kv_layer;
  call.has_keys = layer.kv_layer != index;
  {
    const core::Profiled profiled("attention");
    const int64_t out = layer.heads * layer.head_dim;
    const float* heads = layer.kernel->run(call);
    take(pass, out, [&](int64_t row, float* room) -> const float* {
      if (!layer.has_gates) return heads + row * out;
      elements().gate_by_sigmoid(gate_.row(row), heads + row * out, room, out);
      return room;
    });
  }
  add_product(pass, {"output", layer.o, layer.adapters.o}, layer.o_bias,
              layer.attention_norms.after, layer.o_sum);
}

// Parts what q gave into queries, which move together, and gates.
void FusedDecoder::take_gates(const Layer& layer, int64_t row) {
  const int64_t H = layer.head_dim;
  float *const q = q_.row(row), *const gates = gate_.row(row);
  for (int64_t head = 0; head < layer.heads; ++head) {
    std::copy_n(q + (2 * head + 1) * H, H, gates + head * H);
    std::copy_n(q + 2 * head * H, H, q + head * H);
  }
}

void FusedDecoder::norm_heads(const Pass& pass, const Layer& layer) {
  const int64_t features = layer.heads * layer.head_dim;
  const int64_t kv_features = layer.kv_heads * layer.head_dim;
  if (layer.has_gates) gate_.of(pass.rows(), features);
  for_rows(pass.rows(), features + kv_features, [&](int64_t row) {
    float *q = q_.row(row), *k = k_.row(row), *v = v_.row(row);
    add_bias(layer.q_bias, q);
    add_bias(layer.k_bias, k);
    add_bias(layer.v_bias, v);
    if (layer.has_gates) take_gates(layer, row);
    // Without a projection of their own, v_ has room for a copy.
    if (layer.num_projections == 2) std::copy_n(k, kv_features, v);
    if (layer.v_norm.data != nullptr) norm_in_place(layer.v_norm, v, layer.kv_heads);
    if (layer.q_norm.data == nullptr || norms_over_ranks_) return;
    norm_in_place(layer.q_norm, q, features / layer.q_norm.size);
    if (layer.num_projections == 1) return;
    norm_in_place(layer.k_norm, k, kv_features / layer.k_norm.size);
  });
  if (!norms_over_ranks_) return;
  is_exact_ ? norm_over_ranks_in_order(pass, layer) : norm_over_ranks(pass, layer);
}

float* FusedDecoder::room_for_squares(int64_t rows, int64_t each) {
  if (!head_squares_.defined() || head_squares_.size(0) != rows || head_squares_.size(1) != each) {
    head_squares_ = at::empty({rows, each}, at::kFloat);
  }
  return head_squares_.mutable_data_ptr<float>();
}

// Norms over all heads where other ranks have some of them.
void FusedDecoder::norm_over_ranks(const Pass& pass, const Layer& layer) {
  const int64_t rows = pass.rows(), work = (layer.heads + layer.kv_heads) * layer.head_dim;
  float* const squares = room_for_squares(rows, 2);
  for_rows(rows, work, [&](int64_t row) {
    squares[2 * row] = sum_of_squares(q_.row(row), layer.q_counted);
    squares[2 * row + 1] = sum_of_squares(k_.row(row), layer.k_counted);
  });
  group_.all_reduce(head_squares_);
  scale_heads(pass, layer, squares);
}

// The same in one order: a head's sum comes from one rank, to which the others add zeros.
void FusedDecoder::norm_over_ranks_in_order(const Pass& pass, const Layer& layer) {
  const int64_t rows = pass.rows(), work = (layer.heads + layer.kv_heads) * layer.head_dim;
  const auto q_heads = static_cast<int64_t>(whole_q_) / layer.head_dim;
  const int64_t all_heads = q_heads + static_cast<int64_t>(whole_k_) / layer.head_dim;
  float* const squares = room_for_squares(rows, all_heads);
  for_rows(rows, work, [&](int64_t row) {
    float* const own = squares + row * all_heads;
    std::fill_n(own, all_heads, 0.F);
    const auto take = [&](const std::vector<CountedHead>& heads, const float* x) {
      for (const CountedHead& head : heads) {
        own[head.place] = sum_of_squares(x + head.start, layer.head_dim);
      }
    };
    take(layer.q_heads, q_.row(row));
    take(layer.k_heads, k_.row(row));
  });
  group_.all_reduce(head_squares_);
  // Of each row into the first of its numbers, then one row after the other.
  for (int64_t row = 0; row < rows; ++row) {
    const float* const own = squares + row * all_heads;
    const float q = std::accumulate(own, own + q_heads, 0.F);
    const float k = std::accumulate(own + q_heads, own + all_heads, 0.F);
    squares[2 * row] = q;
    squares[2 * row + 1] = k;
  }
  scale_heads(pass, layer, squares);
}

// Queries and keys of each row by what their squares, a sum of each, and the weights say.
void FusedDecoder::scale_heads(const Pass& pass, const Layer& layer, const float* squares) {
  const int64_t work = (layer.heads + layer.kv_heads) * layer.head_dim;
  const auto scale_by = [this](const Vector& weight, float mean, float* x) {
    const float scale = 1 / std::sqrt(mean + norm_eps_);
    for (int64_t i = 0; i < weight.size; ++i) x[i] *= scale * weight.data[i];
  };
  for_rows(pass.rows(), work, [&](int64_t row) {
    scale_by(layer.q_norm, squares[2 * row] / whole_q_, q_.row(row));
    scale_by(layer.k_norm, squares[2 * row + 1] / whole_k_, k_.row(row));
  });
}

void FusedDecoder::feed_forward(const Pass& pass, const Layer& layer) {
  if (layer.plain_after.data != nullptr) return feed_beside(pass, layer);
  if (layer.experts) return run_experts(pass, layer);
  take_gated(pass, layer);
  add_product(pass, {"down", layer.down, layer.adapters.down}, layer.down_bias,
              layer.ffn_norms.after, layer.down_sum);
}

// What the feed-forward layer's last product is of.
void FusedDecoder::take_gated(const Pass& pass, const Layer& layer) {
  take_normed(pass, layer.ffn_norms.before, inputs_);
  multiply("gate, up", std::array{product(layer.gate, gate_), product(layer.up, up_)});
  low_rank_.add(layer.adapters.gate, gate_.row(0), gate_.stride());
  low_rank_.add(layer.adapters.up, up_.row(0), up_.stride());
  const core::Profiled profiled("gate * up");
  take(pass, layer.ffn, [&](int64_t row, float* room) {
    add_bias(layer.gate_bias, gate_.row(row));
    add_bias(layer.up_bias, up_.row(row));
    gate_row(gating_, gate_.row(row), up_.row(row), room, layer.ffn);
    return room;
  });
}

void FusedDecoder::run_experts(const Pass& pass, const Layer& layer) {
  take_normed(pass, layer.ffn_norms.before, experts_.inputs());
  if (is_exact_) {
    return add_whole(pass, {}, layer.ffn_norms.after,
                     experts_.run_ordered(*layer.experts, pass.tokens));
  }
  add_reduced(pass, {}, layer.ffn_norms.after,
              [&](float* sum) { experts_.run(*layer.experts, pass.tokens, sum); });
}

}  // namespace weft::models
