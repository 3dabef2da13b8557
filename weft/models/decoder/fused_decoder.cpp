#include "weft/models/decoder/fused_decoder.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "weft/nn/attention.h"
#include "weft/nn/kernels/select.h"
#include "weft/nn/rotary_attention.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/view.h"

// Shape letters: B batch, T tokens, S positions, D width, H head dim; n, k: this rank's heads and
// kv heads. A row is one token of one sequence.

namespace weft::models {
namespace {

const nn::kernels::ElementKernel& elements() { return nn::kernels::active_kernel().float32; }

// Runs `use`(row) for all rows; few rows are not worth another thread.
template <class Use>
void for_rows(int64_t rows, int64_t row_work, Use&& use) {
  at::parallel_for(0, rows, quant::rows_per_thread(4 * row_work), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) use(row);
  });
}

void add_bias(const at::Tensor& bias, float* row) {
  if (bias.defined()) elements().add(row, bias.const_data_ptr<float>(), row, bias.numel());
}

// The parameter itself if it is float32 already.
at::Tensor in_float(const at::Tensor& parameter) {
  return parameter.defined() ? parameter.detach().to(at::kFloat).contiguous() : parameter;
}

// Norms `rows` rows of `size` numbers that lie end to end, in place.
void norm_in_place(const at::Tensor& weight, float eps, float* x, int64_t rows, int64_t size) {
  float scale = 0;
  for (int64_t row = 0; row < rows; ++row) {
    float* own = x + row * size;
    elements().norm({1, size, eps, own, weight.const_data_ptr<float>(), own, &scale});
  }
}

// One token's cosines and sines.
struct Turn {
  const float* cos;
  const float* sin;
  int64_t dim;

  void apply(float* x) const {
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[i], b = x[i + half];
      x[i] = a * cos[i] - b * sin[i];
      x[i + half] = b * cos[i + half] + a * sin[i + half];
    }
  }
};

Turn turn_of(const nn::RopeAngles& angles, int64_t token) {
  const int64_t dim = angles.cos().size(-1);
  return {angles.cos().const_data_ptr<float>() + token * dim,
          angles.sin().const_data_ptr<float>() + token * dim, dim};
}

// Where a cache's tensor [B, k, capacity, H] has a position of a sequence's kv head.
float* cache_row(const at::Tensor& cached, int64_t sequence, int64_t kv, int64_t position) {
  return cached.mutable_data_ptr<float>() + sequence * cached.stride(0) + kv * cached.stride(1) +
         position * cached.stride(2);
}

}  // namespace

float* FusedDecoder::Rows::of(int64_t rows, int64_t stride) {
  stride_ = stride;
  floats_.resize(std::max(floats_.size(), static_cast<size_t>(rows * stride)));
  return floats_.data();
}

FusedDecoder::FusedDecoder(const ModelConfig& config, const std::vector<DecoderBlock>& blocks,
                           const nn::RMSNorm& last_norm, dist::Group group)
    : width_(config.width),
      head_dim_(config.head_dim),
      norm_eps_(static_cast<float>(config.norm_eps)),
      group_(std::move(group)),
      last_norm_(in_float(last_norm->weight)) {
  is_complete_ = std::ranges::all_of(blocks, [this](const auto& block) { return add(block); });
  inputs_ = quant::PanelInputs(wants_);
}

// Null if it isn't in panels.
FusedDecoder::Linear FusedDecoder::take(const nn::LinearHolder& holder) {
  const auto inner = holder.inner();
  held_.push_back({&holder, inner});
  return std::dynamic_pointer_cast<nn::PanelLinearImpl>(inner);
}

bool FusedDecoder::add(const DecoderBlock& block) {
  const FeedForwardLayer& ffn = block->feed_forward();
  if (ffn.is_empty()) return false;
  const AttentionParts& parts = block->attention()->parts();
  Layer layer;
  layer.q = take(*parts.q_proj);
  layer.k = take(*parts.k_proj);
  layer.v = take(*parts.v_proj);
  layer.o = take(*parts.o_proj);
  layer.gate = take(*ffn->gate_proj());
  layer.up = take(*ffn->up_proj());
  layer.down = take(*ffn->down_proj());
  for (const Linear* linear :
       {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
    if (!note_wants(*linear)) return false;
  }
  layer.input_norm = in_float(block->input_norm()->weight);
  layer.ffn_norm = in_float(block->ffn_norm()->weight);
  if (!parts.q_norm.is_empty()) layer.q_norm = in_float(parts.q_norm->weight);
  if (!parts.k_norm.is_empty()) layer.k_norm = in_float(parts.k_norm->weight);
  layer.o_bias = in_float(parts.o_proj->bias);
  layer.down_bias = in_float(ffn->down_proj()->bias);
  layer.kv_of_head = parts.kv_of_head;
  layer.window = parts.window;
  layers_.push_back(std::move(layer));
  return true;
}

// False if it isn't in panels, or wants codes of other bits than those before.
bool FusedDecoder::note_wants(const Linear& linear) {
  if (linear == nullptr) return false;
  const auto own = quant::PanelInputs::Wants::of(linear->weight);
  const int64_t bits = wants_.code_bits;
  if (own.code_bits != 0 && bits != 0 && own.code_bits != bits) return false;
  wants_ = {std::max(bits, own.code_bits), wants_.numbers || own.numbers};
  return true;
}

bool FusedDecoder::is_current() const {
  return std::ranges::all_of(
      held_, [](const Held& each) { return each.holder->inner() == each.inner.lock(); });
}

at::Tensor FusedDecoder::run(const at::Tensor& x_BTD, const nn::RopeAngles& angles,
                             nn::KvCache& cache) {
  cache.check_room(x_BTD.size(1));
  at::Tensor x = at::empty(x_BTD.sizes(), at::kFloat);
  x.copy_(x_BTD);
  const Pass pass{x.size(0), x.size(1), cache.length(),
                  &angles,   &cache,    x.mutable_data_ptr<float>()};
  if (!sum_.defined() || sum_.size(0) < pass.rows()) sum_ = at::empty({pass.rows(), width_});
  for (size_t i = 0; i < layers_.size(); ++i) {
    attend(pass, static_cast<int64_t>(i));
    feed_forward(pass, layers_[i]);
  }
  for_rows(pass.rows(), width_, [&](int64_t row) {
    norm_in_place(last_norm_, norm_eps_, pass.x + row * width_, 1, width_);
  });
  return x;
}

// x * norm, rounded.
void FusedDecoder::round_normed(const Pass& pass, const at::Tensor& weight) {
  float* normed = normed_.of(pass.rows(), width_);
  for_rows(pass.rows(), width_, [&](int64_t row) {
    float scale = 0;
    elements().norm({1, width_, norm_eps_, pass.x + row * width_, weight.const_data_ptr<float>(),
                     normed + row * width_, &scale});
  });
  round(normed, pass.rows(), width_, width_);
}

void FusedDecoder::round(const float* x, int64_t rows, int64_t in, int64_t stride) {
  inputs_.take(quant::kernels::active_panel_kernel(), x, rows, in, stride);
}

quant::PanelProduct FusedDecoder::product(const Linear& linear, Rows& to) const {
  const int64_t stride = quant::padded_out(linear->weight);
  return {&linear->weight, to.of(inputs_.num_rows(), stride), stride};
}

void FusedDecoder::multiply(std::span<const quant::PanelProduct> products) const {
  quant::multiply(quant::kernels::active_panel_kernel(), inputs_, products);
}

void FusedDecoder::attend(const Pass& pass, int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  round_normed(pass, layer.input_norm);
  multiply(std::array{product(layer.q, q_), product(layer.k, k_), product(layer.v, v_)});
  norm_heads(pass, layer);
  if (pass.tokens == 1) {
    attend_one_token(pass, layer, index);
  } else {
    attend_tokens(pass, layer, index);
  }
  add_reduced(pass, *layer.o, layer.o_bias);
}

void FusedDecoder::norm_heads(const Pass& pass, const Layer& layer) {
  const int64_t heads = layer.q->out_features() / head_dim_;
  const int64_t kv_heads = layer.k->out_features() / head_dim_;
  for_rows(pass.rows(), (heads + kv_heads) * head_dim_, [&](int64_t row) {
    float *q = q_.row(row), *k = k_.row(row);
    add_bias(layer.q->bias, q);
    add_bias(layer.k->bias, k);
    add_bias(layer.v->bias, v_.row(row));
    if (layer.q_norm.defined()) norm_in_place(layer.q_norm, norm_eps_, q, heads, head_dim_);
    if (layer.k_norm.defined()) norm_in_place(layer.k_norm, norm_eps_, k, kv_heads, head_dim_);
  });
}

// Queries are turned and scaled; turned keys and values go to the cache.
void FusedDecoder::turn_heads(const Pass& pass, const Layer& layer, int64_t index, float q_scale) {
  const int64_t heads = layer.q->out_features() / head_dim_;
  const int64_t kv_heads = layer.k->out_features() / head_dim_;
  const at::Tensor keys = pass.cache->keys(index), values = pass.cache->values(index);
  const size_t bytes = static_cast<size_t>(head_dim_) * sizeof(float);
  for_rows(pass.rows(), (heads + 2 * kv_heads) * head_dim_, [&](int64_t row) {
    const int64_t sequence = row / pass.tokens, token = row % pass.tokens;
    const Turn turn = turn_of(*pass.angles, token);
    float *q = q_.row(row), *k = k_.row(row), *v = v_.row(row);
    for (int64_t head = 0; head < heads; ++head) turn.apply(q + head * head_dim_);
    for (int64_t i = 0; i < heads * head_dim_; ++i) q[i] *= q_scale;
    for (int64_t head = 0; head < kv_heads; ++head) {
      const int64_t position = pass.start + token, first = head * head_dim_;
      turn.apply(k + first);
      std::memcpy(cache_row(keys, sequence, head, position), k + first, bytes);
      std::memcpy(cache_row(values, sequence, head, position), v + first, bytes);
    }
  });
}

void FusedDecoder::attend_one_token(const Pass& pass, const Layer& layer, int64_t index) {
  turn_heads(pass, layer, index, 1 / std::sqrt(static_cast<float>(head_dim_)));
  const auto heads = static_cast<int64_t>(layer.kv_of_head.size());
  const int64_t positions = pass.start + 1;
  const int64_t seen = layer.window == 0 ? positions : std::min(positions, layer.window);
  const at::Tensor keys = pass.cache->keys(index), values = pass.cache->values(index);
  float* scores = scores_.of(pass.rows() * heads, seen);
  float* out = normed_.of(pass.rows(), heads * head_dim_);
  for_rows(pass.rows() * heads, seen * head_dim_, [&](int64_t task) {
    const int64_t row = task / heads, head = task % heads;
    const int64_t kv = layer.kv_of_head[static_cast<size_t>(head)];
    nn::kernels::CachedHead cached;
    cached.positions = seen;
    cached.head_dim = head_dim_;
    cached.num_queries = 1;
    cached.q = q_.row(row) + head * head_dim_;
    cached.k = cache_row(keys, row, kv, positions - seen);
    cached.v = cache_row(values, row, kv, positions - seen);
    cached.o = out + task * head_dim_;
    nn::kernels::active_kernel().attend_cached(cached, scores + task * seen);
  });
  round(out, pass.rows(), heads * head_dim_, heads * head_dim_);
}

void FusedDecoder::attend_tokens(const Pass& pass, const Layer& layer, int64_t index) {
  const auto heads_of = [&](Rows& rows, int64_t count) {
    return at::from_blob(rows.row(0), {pass.batch, pass.tokens, count, head_dim_},
                         {pass.tokens * rows.stride(), rows.stride(), head_dim_, 1},
                         at::TensorOptions(at::kFloat));
  };
  const auto heads = static_cast<int64_t>(layer.kv_of_head.size());
  const int64_t kv_heads = layer.k->out_features() / head_dim_;
  const at::Tensor q_BTnH = heads_of(q_, heads);
  at::Tensor out;
  if (pass.start == 0) {
    out = nn::rotary_attention(q_BTnH, heads_of(k_, kv_heads), heads_of(v_, kv_heads), *pass.angles,
                               {layer.kv_of_head, layer.window});
    turn_heads(pass, layer, index, 1);
  } else {
    turn_heads(pass, layer, index, 1);
    const int64_t positions = pass.start + pass.tokens;
    out = nn::grouped_query_attention(
        q_BTnH.transpose(1, 2), pass.cache->keys(index).narrow(2, 0, positions),
        pass.cache->values(index).narrow(2, 0, positions), layer.kv_of_head, layer.window);
  }
  out = out.contiguous();
  round(out.const_data_ptr<float>(), pass.rows(), heads * head_dim_, heads * head_dim_);
}

void FusedDecoder::feed_forward(const Pass& pass, const Layer& layer) {
  round_normed(pass, layer.ffn_norm);
  multiply(std::array{product(layer.gate, gate_), product(layer.up, up_)});
  const int64_t ffn = layer.gate->out_features();
  for_rows(pass.rows(), ffn, [&](int64_t row) {
    add_bias(layer.gate->bias, gate_.row(row));
    add_bias(layer.up->bias, up_.row(row));
    elements().swiglu(gate_.row(row), up_.row(row), gate_.row(row), ffn);
  });
  round(gate_.row(0), pass.rows(), ffn, gate_.stride());
  add_reduced(pass, *layer.down, layer.down_bias);
}

// x += the ranks' sum of what is rounded times the linear.
void FusedDecoder::add_reduced(const Pass& pass, const nn::PanelLinearImpl& linear,
                               const at::Tensor& bias) {
  at::Tensor sum = sum_.narrow(0, 0, pass.rows());
  float* own = sum.mutable_data_ptr<float>();
  multiply(std::array{quant::PanelProduct{&linear.weight, own, width_}});
  group_.all_reduce(sum);
  for_rows(pass.rows(), width_, [&](int64_t row) {
    float* x = pass.x + row * width_;
    elements().add(x, own + row * width_, x, width_);
    add_bias(bias, x);
  });
}

}  // namespace weft::models
