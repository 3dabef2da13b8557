#include "weft/models/passes/cuda/cuda_decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/profile.h"
#include "weft/cuda/device.h"
#include "weft/cuda/kernels/multiply.h"
#include "weft/cuda/kernels/rows.h"

// Shape letters: B batch, T tokens, D width. A row is one token of one sequence.

namespace weft::models {
namespace {

constexpr int64_t kFloat = sizeof(float);

void append(std::vector<float>& floats, const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kFloat).contiguous();
  const auto* data = numbers.const_data_ptr<float>();
  floats.insert(floats.end(), data, data + numbers.numel());
}

// Empty where there is none.
cuda::Buffer norm_on_cuda(const nn::RMSNorm& norm) {
  return norm.is_empty() ? cuda::Buffer() : floats_on_cuda(norm->whole_weight());
}

}  // namespace

CudaDecoder::CudaDecoder(const PassParts& parts)
    : width_(parts.config.width),
      head_dim_(parts.config.head_dim),
      norm_eps_(static_cast<float>(parts.config.norm_eps)),
      residual_scale_(static_cast<float>(parts.config.residual_scale)),
      gating_(cuda_gating(parts.config.gating)),
      group_(parts.group) {
  is_complete_ =
      head_dim_ <= cuda::kMostHeadDim &&
      std::ranges::all_of(parts.blocks, [this](const auto& block) { return add(block); });
  if (is_complete_) last_norm_ = floats_on_cuda(parts.last_norm->whole_weight());
}

bool CudaDecoder::add(const DecoderBlock& block) {
  Layer layer;
  if (!add_attention(block, layer) || !add_feed_forward(block, layer)) return false;
  layer.input_norm = floats_on_cuda(block->attention_norms().before->whole_weight());
  layer.ffn_norm = floats_on_cuda(block->ffn_norms().before->whole_weight());
  layer.attention_after = norm_on_cuda(block->attention_norms().after);
  layer.ffn_after = norm_on_cuda(block->ffn_norms().after);
  layers_.push_back(std::move(layer));
  return true;
}

bool CudaDecoder::add_attention(const DecoderBlock& block, Layer& layer) {
  const AttentionParts& parts = block->attention()->parts();
  const auto linears = held_.take_attention<nn::CudaLinearImpl>(block);
  for (const Linear& linear : {linears.q, linears.k, linears.v, linears.o}) {
    if (linear == nullptr) return false;
  }
  layer.attention = linears;
  layer.q_bias = floats_on_cuda(linears.q->bias);
  layer.k_bias = floats_on_cuda(linears.k->bias);
  layer.v_bias = floats_on_cuda(linears.v->bias);
  layer.o_bias = floats_on_cuda(parts.o_proj->bias);
  layer.q_norm = floats_on_cuda(parts.q_norm.weight());
  layer.k_norm = floats_on_cuda(parts.k_norm.weight());
  layer.kv_of_head = ints_on_cuda(parts.spec.kv_of_head);
  layer.sinks = floats_on_cuda(parts.spec.sinks);
  layer.spec = parts.spec;
  layer.has_rope = parts.has_rope;
  heads_ = linears.q->out_features() / head_dim_;
  kv_heads_ = linears.k->out_features() / head_dim_;
  return true;
}

// A mixture adds its biases itself.
bool CudaDecoder::add_feed_forward(const DecoderBlock& block, Layer& layer) {
  if (!block->experts().is_empty()) {
    layer.experts = CudaExperts::take(block->experts(), held_);
    return layer.experts.has_value();
  }
  const FeedForwardLayer& ffn = block->feed_forward();
  const auto linears = held_.take_feed_forward<nn::CudaLinearImpl>(ffn);
  for (const Linear& linear : {linears.gate, linears.up, linears.down}) {
    if (linear == nullptr) return false;
  }
  layer.ffn = linears;
  layer.gate_bias = floats_on_cuda(linears.gate->bias);
  layer.up_bias = floats_on_cuda(linears.up->bias);
  layer.down_bias = floats_on_cuda(ffn->down_proj()->bias);
  ffn_ = std::max(ffn_, linears.gate->out_features());
  return true;
}

nn::KvCache CudaDecoder::make_cache(const CacheRequest& request) const {
  core::check<core::ConfigError>(
      request.dtype.value_or(at::kFloat) == at::kFloat, "models.CausalLM: a cache of ",
      c10::toString(request.dtype.value_or(at::kFloat)), " on a GPU, expected Float");
  core::check<core::ConfigError>(request.capacity >= 1, "nn.KvCache: capacity ", request.capacity,
                                 ", expected at least 1 position");
  const CudaKvStore::Sizes sizes{static_cast<int64_t>(layers_.size()), request.batch, kv_heads_,
                                 request.capacity, head_dim_};
  return {request.capacity, std::make_shared<CudaKvStore>(sizes)};
}

const CudaKvStore& CudaDecoder::store_of(const nn::KvCache& cache, int64_t batch) const {
  const auto* store = dynamic_cast<const CudaKvStore*>(cache.store());
  core::check<core::ConfigError>(store != nullptr,
                                 "models.CudaDecoder: a cache of the CPU, expected one on the GPU; "
                                 "make it of the model as it is now");
  core::check<core::ConfigError>(store->sizes().batch == batch, "models.CudaDecoder: ", batch,
                                 " sequences, expected ", store->sizes().batch,
                                 " as the cache has");
  return *store;
}

at::Tensor CudaDecoder::run(const at::Tensor& x_BTD, const PassContext& context) {
  if (context.cache != nullptr) return run_over(x_BTD, context.angles, *context.cache);
  const nn::KvCache alone = make_cache({x_BTD.size(0), x_BTD.size(1), at::kFloat});
  return run_over(x_BTD, context.angles, alone);
}

at::Tensor CudaDecoder::run_over(const at::Tensor& x_BTD, const LayerAngles& angles,
                                 const nn::KvCache& cache) {
  cache.check_room(x_BTD.size(1));
  meet();
  AnglesForm form{angles.all.cos().size(-1), std::nullopt, angles.query_factors.defined(),
                  angles.all.turns_neighbours()};
  if (angles.windowed) form.windowed_dim = angles.windowed->cos().size(-1);
  const Pass pass{x_BTD.size(0), x_BTD.size(1), form, &store_of(cache, x_BTD.size(0))};
  make_room(pass);
  upload_inputs(pass, x_BTD, angles, cache.length());
  run_pass(pass);
  at::Tensor hidden_BTD = at::empty(x_BTD.sizes(), at::kFloat);
  normed_.download(hidden_BTD.mutable_data_ptr(), static_cast<int64_t>(hidden_BTD.nbytes()));
  return hidden_BTD;
}

// Agrees on how sums are reduced. Collective, once.
void CudaDecoder::meet() {
  if (has_met_ || group_.size() == 1) return;
  has_met_ = true;
  if (!have_own_gpus()) {
    if (group_.rank() == 0) {
      core::log(core::LogLevel::kInfo, "--device cuda: sums of ranks travel through the CPU: NCCL ",
                "(libnccl.so.2) is missing, or ranks share a GPU");
    }
    return;
  }
  cuda::RankSum::Id id = {};
  if (group_.rank() == 0) id = cuda::RankSum::make_id();
  at::Tensor shared = at::tensor(at::ArrayRef<int64_t>(id.data(), id.size()), at::kLong);
  group_.broadcast(shared, 0);
  std::copy_n(shared.const_data_ptr<int64_t>(), id.size(), id.begin());
  rank_sum_.emplace(id, group_.rank(), group_.size());
}

// Whether NCCL can be used, which refuses ranks that share a GPU.
bool CudaDecoder::have_own_gpus() const {
  const auto uuid = cuda::device_uuid();
  const at::Tensor own =
      at::tensor({int64_t{cuda::RankSum::is_available()}, uuid[0], uuid[1]}, at::kLong);
  const std::vector<int64_t> threes(static_cast<size_t>(group_.size()), own.numel());
  const at::Tensor all = group_.all_gather(own, 0, threes);
  std::set<std::pair<int64_t, int64_t>> gpus;
  const auto* of_rank = all.const_data_ptr<int64_t>();
  for (int64_t rank = 0; rank < group_.size(); ++rank, of_rank += own.numel()) {
    if (of_rank[0] == 0 || !gpus.emplace(of_rank[1], of_rank[2]).second) return false;
  }
  return true;
}

// Memory that moves makes a recording wrong.
void CudaDecoder::make_room(const Pass& pass) {
  bool moves = false;
  const auto need = [&](cuda::Buffer& buffer, int64_t floats) {
    moves |= buffer.make_room(floats * kFloat);
  };
  const int64_t rows = pass.rows();
  need(inputs_, places_of(pass).end);
  for (cuda::Buffer* buffer : {&normed_, &sum_}) need(*buffer, rows * width_);
  for (cuda::Buffer* buffer : {&q_, &attended_}) need(*buffer, rows * heads_ * head_dim_);
  for (cuda::Buffer* buffer : {&k_, &v_}) need(*buffer, rows * kv_heads_ * head_dim_);
  for (cuda::Buffer* buffer : {&gate_, &up_}) need(*buffer, rows * ffn_);
  for (size_t i = 0; i < layers_.size(); ++i) {
    need(scratch_, cuda::attention_scratch(attention_call(pass, static_cast<int64_t>(i))));
  }
  for (const Layer& layer : layers_) {
    if (layer.experts) moves |= experts_.make_room(*layer.experts, rows);
  }
  if (!moves) return;
  last_place_.reset();
  graph_.reset();
}

CudaDecoder::InputPlaces CudaDecoder::places_of(const Pass& pass) const {
  const AnglesForm& form = pass.form;
  const int64_t all = pass.tokens * form.turned_dim;
  const int64_t windowed = pass.tokens * form.windowed_dim.value_or(0);
  InputPlaces places{};
  places.cos = pass.rows() * width_;
  places.sin = places.cos + all;
  places.windowed_cos = places.sin + all;
  places.windowed_sin = places.windowed_cos + windowed;
  places.factors = places.windowed_sin + windowed;
  places.start = places.factors + (form.has_factors ? pass.tokens : 0);
  places.end = places.start + 1;
  return places;
}

void CudaDecoder::upload_inputs(const Pass& pass, const at::Tensor& x_BTD,
                                const LayerAngles& angles, int64_t start) {
  host_inputs_.clear();
  append(host_inputs_, x_BTD);
  append(host_inputs_, angles.all.cos());
  append(host_inputs_, angles.all.sin());
  if (angles.windowed) {
    append(host_inputs_, angles.windowed->cos());
    append(host_inputs_, angles.windowed->sin());
  }
  if (angles.query_factors.defined()) append(host_inputs_, angles.query_factors);
  host_inputs_.push_back(std::bit_cast<float>(static_cast<int32_t>(start)));
  const int64_t expected = places_of(pass).end;
  const auto got = static_cast<int64_t>(host_inputs_.size());
  core::check<core::InternalError>(got == expected, "models.CudaDecoder: inputs of ", got,
                                   " numbers, expected ", expected);
  inputs_.upload(host_inputs_.data(), got * kFloat);
}

// The first pass of one token at a place runs kernel by kernel, the second is recorded.
void CudaDecoder::run_pass(const Pass& pass) {
  const bool sums_travel = group_.size() > 1 && !rank_sum_;
  if (pass.tokens != 1 || sums_travel) return run_layers(pass);
  const Place place{pass.store->keys(0), pass.store->values(0), pass.store->sizes(), pass.form};
  if (last_place_ != place) {
    graph_.reset();
    last_place_ = place;
    return run_layers(pass);
  }
  if (!graph_) graph_.emplace([&] { run_layers(pass); });
  graph_->launch();
}

void CudaDecoder::run_layers(const Pass& pass) {
  std::optional<Added> added;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    norm(pass, added, layer.input_norm);
    attend(pass, static_cast<int64_t>(i));
    norm(pass, Added{&layer.o_bias, &layer.attention_after}, layer.ffn_norm);
    if (layer.experts) {
      experts_.run(*layer.experts, normed_.as<const float>(), pass.rows(), sum_.as<float>());
    } else {
      feed_forward(pass, layer);
    }
    reduce(pass);
    added = {&layer.down_bias, &layer.ffn_after};
  }
  norm(pass, added, last_norm_);
}

// x += scale * what the last sum becomes, of which there is none before the first; normed =
// norm(x).
void CudaDecoder::norm(const Pass& pass, const std::optional<Added>& added,
                       const cuda::Buffer& weight) {
  cuda::NormCall call;
  call.x = inputs_.as<float>();
  if (added) {
    call.added = sum_.as<const float>();
    call.bias = added->bias->as<const float>();
    call.added_weight = added->norm->as<const float>();
  }
  call.weight = weight.as<const float>();
  call.normed = normed_.as<float>();
  call.rows = static_cast<int32_t>(pass.rows());
  call.width = static_cast<int32_t>(width_);
  call.added_scale = residual_scale_;
  call.eps = norm_eps_;
  cuda::add_and_norm(call);
}

void CudaDecoder::attend(const Pass& pass, int64_t index) {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const std::array<cuda::Product, 3> products = {
      {{layer.attention.q->weight.view(), q_.as<float>()},
       {layer.attention.k->weight.view(), k_.as<float>()},
       {layer.attention.v->weight.view(), v_.as<float>()}}};
  cuda::multiply(products, normed_.as<const float>(), pass.rows());
  cuda::attend(attention_call(pass, index));
  const cuda::Product out = {layer.attention.o->weight.view(), sum_.as<float>()};
  cuda::multiply({&out, 1}, attended_.as<const float>(), pass.rows());
  reduce(pass);
}

// Where the pass's tokens stand, as the layer turns their heads.
void CudaDecoder::put_positions(const Pass& pass, const Layer& layer,
                                cuda::AttentionCall& call) const {
  const InputPlaces places = places_of(pass);
  const AnglesForm& form = pass.form;
  const bool is_windowed = layer.spec.window != 0 && form.windowed_dim;
  const auto* inputs = inputs_.as<const float>();
  call.cos = inputs + (is_windowed ? places.windowed_cos : places.cos);
  call.sin = inputs + (is_windowed ? places.windowed_sin : places.sin);
  if (form.has_factors) call.query_factors = inputs + places.factors;
  call.start = reinterpret_cast<const int32_t*>(inputs + places.start);
  const int64_t turned = is_windowed ? *form.windowed_dim : form.turned_dim;
  call.turned_dim = static_cast<int32_t>(layer.has_rope ? turned : 0);
  call.turns_neighbours = form.turns_neighbours;
}

cuda::AttentionCall CudaDecoder::attention_call(const Pass& pass, int64_t index) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  cuda::AttentionCall call;
  call.q = q_.as<float>();
  call.k = k_.as<const float>();
  call.v = v_.as<const float>();
  call.q_bias = layer.q_bias.as<const float>();
  call.k_bias = layer.k_bias.as<const float>();
  call.v_bias = layer.v_bias.as<const float>();
  call.q_norm = layer.q_norm.as<const float>();
  call.k_norm = layer.k_norm.as<const float>();
  put_positions(pass, layer, call);
  call.keys = pass.store->keys(index);
  call.values = pass.store->values(index);
  call.kv_of_head = layer.kv_of_head.as<const int32_t>();
  call.sinks = layer.sinks.as<const float>();
  call.out = attended_.as<float>();
  call.scratch = scratch_.as<float>();
  call.rows = static_cast<int32_t>(pass.rows());
  call.tokens = static_cast<int32_t>(pass.tokens);
  call.heads = static_cast<int32_t>(heads_);
  call.kv_heads = static_cast<int32_t>(kv_heads_);
  call.head_dim = static_cast<int32_t>(head_dim_);
  call.capacity = static_cast<int32_t>(pass.store->sizes().capacity);
  call.window = static_cast<int32_t>(layer.spec.window);
  call.scale = layer.spec.scale_for(head_dim_);
  call.cap = static_cast<float>(layer.spec.cap);
  call.eps = norm_eps_;
  return call;
}

void CudaDecoder::feed_forward(const Pass& pass, const Layer& layer) {
  const std::array<cuda::Product, 2> products = {
      {{layer.ffn.gate->weight.view(), gate_.as<float>()},
       {layer.ffn.up->weight.view(), up_.as<float>()}}};
  cuda::multiply(products, normed_.as<const float>(), pass.rows());
  cuda::GateCall call;
  call.gate = gate_.as<float>();
  call.up = up_.as<const float>();
  call.gate_bias = layer.gate_bias.as<const float>();
  call.up_bias = layer.up_bias.as<const float>();
  call.rows = static_cast<int32_t>(pass.rows());
  call.width = static_cast<int32_t>(layer.ffn.gate->out_features());
  call.gating = gating_;
  cuda::apply_gate(call);
  const cuda::Product down = {layer.ffn.down->weight.view(), sum_.as<float>()};
  cuda::multiply({&down, 1}, gate_.as<const float>(), pass.rows());
}

// The ranks' sum of their partial sums.
void CudaDecoder::reduce(const Pass& pass) {
  if (group_.size() == 1) return;
  if (rank_sum_) return rank_sum_->add(sum_.as<float>(), pass.rows() * width_);
  const core::Profiled profiled("all-reduce");
  if (!host_sum_.defined() || host_sum_.size(0) != pass.rows()) {
    host_sum_ = at::empty({pass.rows(), width_}, at::kFloat);
  }
  const auto bytes = static_cast<int64_t>(host_sum_.nbytes());
  sum_.download(host_sum_.mutable_data_ptr(), bytes);
  group_.all_reduce(host_sum_);
  sum_.upload(host_sum_.const_data_ptr(), bytes);
}

}  // namespace weft::models
