#include "weft/models/decoder/fused_decoder.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/profile.h"
#include "weft/nn/kernels/select.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/view.h"

// Shape letters: B batch, T tokens, D width. A row is one token of one sequence.

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

}  // namespace

float* FusedDecoder::Rows::of(int64_t rows, int64_t stride) {
  stride_ = stride;
  return floats_.make_room(rows * stride);
}

FusedDecoder::FusedDecoder(const ModelConfig& config, const std::vector<DecoderBlock>& blocks,
                           const nn::RMSNorm& last_norm, dist::Group group)
    : width_(config.width),
      head_dim_(config.head_dim),
      norm_eps_(static_cast<float>(config.norm_eps)),
      attention_(config.head_dim),
      group_(std::move(group)),
      last_norm_(in_float(last_norm->weight)) {
  is_complete_ = std::ranges::all_of(blocks, [this](const auto& block) { return add(block); });
  inputs_ = quant::PanelInputs(wants_);
}

bool FusedDecoder::add(const DecoderBlock& block) {
  const FeedForwardLayer& ffn = block->feed_forward();
  if (ffn.is_empty()) return false;
  const AttentionParts& parts = block->attention()->parts();
  Layer layer(held_.take_all<nn::PanelLinearImpl>(block));
  for (const Linear& linear : layer.all()) {
    if (!note_wants(linear)) return false;
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
  wants_ = wants_ | own;
  return true;
}

bool FusedDecoder::is_current() const { return held_.are_current(); }

at::Tensor FusedDecoder::run(const at::Tensor& x_BTD, const nn::RopeAngles& angles,
                             nn::KvCache& cache) {
  cache.check_room(x_BTD.size(1));
  at::Tensor x = at::empty(x_BTD.sizes(), at::kFloat);
  x.copy_(x_BTD);
  const Pass pass{
      x.size(0), x.size(1), cache.length(), &angles, &cache, &x, x.mutable_data_ptr<float>()};
  if (!sum_.defined() || sum_.size(0) != pass.rows()) sum_ = at::empty({pass.rows(), width_});
  for (size_t i = 0; i < layers_.size(); ++i) {
    attend(pass, static_cast<int64_t>(i));
    feed_forward(pass, layers_[i]);
  }
  for_rows(pass.rows(), width_, [&](int64_t row) {
    norm_in_place(last_norm_, norm_eps_, pass.x + row * width_, 1, width_);
  });
  return x;
}

// The rows that the next products are of.
void FusedDecoder::take(const Pass& pass, int64_t in, quant::PanelInputs::RowSource row_of) {
  inputs_.take(quant::kernels::active_panel_kernel(), {pass.rows(), in, pass.tokens}, row_of);
}

// x * norm.
void FusedDecoder::take_normed(const Pass& pass, const at::Tensor& weight) {
  const core::Profiled profiled("norm");
  take(pass, width_, [&](int64_t row, float* room) {
    float scale = 0;
    elements().norm({1, width_, norm_eps_, pass.x + row * width_, weight.const_data_ptr<float>(),
                     room, &scale});
    return room;
  });
}

quant::PanelProduct FusedDecoder::product(const Linear& linear, Rows& to) const {
  const int64_t stride = quant::padded_out(linear->weight);
  return {&linear->weight, to.of(inputs_.num_rows(), stride), stride};
}

void FusedDecoder::multiply(const char* part, std::span<const quant::PanelProduct> products) const {
  const core::Profiled profiled(part);
  quant::multiply(quant::kernels::active_panel_kernel(), inputs_, products);
}

void FusedDecoder::attend(const Pass& pass, int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  take_normed(pass, layer.input_norm);
  multiply("q, k, v", std::array{product(layer.q, q_), product(layer.k, k_), product(layer.v, v_)});
  norm_heads(pass, layer);
  FusedAttention::Call call;
  call.batch = pass.batch;
  call.tokens = pass.tokens;
  call.q = heads_of(*layer.q, q_);
  call.k = heads_of(*layer.k, k_);
  call.v = heads_of(*layer.v, v_);
  call.angles = pass.angles;
  call.kv_of_head = &layer.kv_of_head;
  call.window = layer.window;
  call.layer = index;
  call.cache = pass.cache;
  {
    const core::Profiled profiled("attention");
    const int64_t out = layer.q->out_features();
    const float* heads = attention_.run(call);
    take(pass, out, [&](int64_t row, float* /*room*/) { return heads + row * out; });
  }
  add_reduced(pass, "output", *layer.o, layer.o_bias);
}

FusedAttention::Heads FusedDecoder::heads_of(const nn::PanelLinearImpl& linear, Rows& rows) const {
  return {rows.row(0), rows.stride(), linear.out_features() / head_dim_};
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

void FusedDecoder::feed_forward(const Pass& pass, const Layer& layer) {
  take_normed(pass, layer.ffn_norm);
  multiply("gate, up", std::array{product(layer.gate, gate_), product(layer.up, up_)});
  take_swiglu(pass, layer);
  add_reduced(pass, "down", *layer.down, layer.down_bias);
}

// silu(gate) * up.
void FusedDecoder::take_swiglu(const Pass& pass, const Layer& layer) {
  const core::Profiled profiled("swiglu");
  const int64_t ffn = layer.gate->out_features();
  take(pass, ffn, [&](int64_t row, float* room) {
    add_bias(layer.gate->bias, gate_.row(row));
    add_bias(layer.up->bias, up_.row(row));
    elements().swiglu(gate_.row(row), up_.row(row), room, ffn);
    return room;
  });
}

// x += the ranks' sum of what was taken times the linear.
void FusedDecoder::add_reduced(const Pass& pass, const char* part,
                               const nn::PanelLinearImpl& linear, const at::Tensor& bias) {
  // Where the ranks share memory, the product is written where the others read it.
  float* const room = group_.sum_room(pass.rows() * width_);
  float* const own = room != nullptr ? room : sum_.mutable_data_ptr<float>();
  multiply(part, std::array{quant::PanelProduct{&linear.weight, own, width_}});
  const core::Profiled profiled("all-reduce, residual");
  const bool is_alone = group_.size() == 1;
  if (!is_alone) group_.add_sum(*pass.x_BTD, own);
  if (!is_alone && !bias.defined()) return;
  for_rows(pass.rows(), width_, [&](int64_t row) {
    float* x = pass.x + row * width_;
    if (is_alone) elements().add(x, own + row * width_, x, width_);
    add_bias(bias, x);
  });
}

}  // namespace weft::models
