#include "weft/nn/attention/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"

namespace weft::nn {

namespace {

int64_t checked_capacity(int64_t capacity) {
  core::check<core::ConfigError>(capacity >= 1, "nn.KvCache: capacity ", capacity,
                                 ", expected at least 1 position");
  return capacity;
}

}  // namespace

KvCache::KvCache(const Options& options)
    : dtype_(options.dtype), capacity_(checked_capacity(options.capacity)) {
  const int64_t layers = make_states(options);
  std::array<int64_t, 5> shape = {layers, options.batch, options.num_kv_heads, capacity_,
                                  options.head_dim};
  keys_ = at::empty(shape, dtype_);
  shape[4] = options.value_dim.value_or(options.head_dim);
  values_ = at::empty(shape, dtype_);
  keys_data_ = static_cast<std::byte*>(keys_.mutable_data_ptr());
  values_data_ = static_cast<std::byte*>(values_.mutable_data_ptr());
  const auto divisor = static_cast<size_t>(std::max<int64_t>(layers, 1));
  key_layer_bytes_ = static_cast<int64_t>(keys_.nbytes() / divisor);
  value_layer_bytes_ = static_cast<int64_t>(values_.nbytes() / divisor);
}

// Returns how many layers have keys and values.
int64_t KvCache::make_states(const Options& options) {
  if (options.states.empty()) return options.num_layers;
  int64_t with_keys = 0;
  for (const StateSizes& sizes : options.states) {
    key_layers_.push_back(with_keys);
    std::vector<at::Tensor>& state = states_.emplace_back();
    if (sizes.empty()) ++with_keys;
    for (std::vector<int64_t> shape : sizes) {
      shape.insert(shape.begin(), options.batch);
      state.push_back(at::zeros(shape));
    }
  }
  return with_keys;
}

KvCache::KvCache(int64_t capacity, std::shared_ptr<KvStore> store)
    : capacity_(checked_capacity(capacity)), store_(std::move(store)) {}

std::pair<at::Tensor, at::Tensor> KvCache::append(int64_t layer, const at::Tensor& k_BkTH,
                                                  const at::Tensor& v_BkTH) {
  const int64_t tokens = k_BkTH.size(2);
  core::check<core::ConfigError>(store_ == nullptr,
                                 "nn.KvCache.append: the cache lies on a GPU, expected one of "
                                 "tensors; make a new one of the model as it is now");
  check_room(tokens);
  const int64_t own = key_layers_.empty() ? layer : key_layers_[static_cast<size_t>(layer)];
  const at::Tensor keys = keys_.select(0, own), values = values_.select(0, own);
  keys.narrow(2, length_, tokens).copy_(k_BkTH);
  if (values.numel() > 0) values.narrow(2, length_, tokens).copy_(v_BkTH);
  return {keys.narrow(2, 0, length_ + tokens), values.narrow(2, 0, length_ + tokens)};
}

void KvCache::check_room(int64_t tokens) const {
  core::check<core::ConfigError>(length_ + tokens <= capacity_, "nn.KvCache: ", length_ + tokens,
                                 " positions, expected at most ", capacity_,
                                 "; use a larger --ctx-size or fewer tokens");
}

void KvCache::append_copy(const KvCache& from, int64_t start, int64_t count) {
  check_room(count);
  core::check<core::InternalError>(start >= 0 && count >= 0 && start + count <= from.length_,
                                   "nn.KvCache.append_copy: positions ", start, " to ",
                                   start + count, " of ", from.length_);
  core::check<core::InternalError>(states_.empty() && from.states_.empty(),
                                   "nn.KvCache.append_copy: a cache with states, expected keys and "
                                   "values alone");
  core::check<core::InternalError>(
      (store_ == nullptr) == (from.store_ == nullptr),
      "nn.KvCache.append_copy: one cache lies on a GPU, expected both");
  if (store_ != nullptr) {
    store_->copy(length_, *from.store_, start, count);
  } else {
    keys_.narrow(3, length_, count).copy_(from.keys_.narrow(3, start, count));
    values_.narrow(3, length_, count).copy_(from.values_.narrow(3, start, count));
  }
  advance(count);
}

void KvCache::truncate(int64_t length) {
  core::check<core::InternalError>(length >= 0 && length <= length_, "nn.KvCache: truncate to ",
                                   length, " of ", length_);
  core::check<core::InternalError>(most_kept(length) == length, "nn.KvCache: truncate to ", length,
                                   " of ", length_, " with states, expected all or none");
  if (length == 0) clear_states();
  length_ = length;
}

void KvCache::clear_states() {
  for (const std::vector<at::Tensor>& state : states_) {
    for (const at::Tensor& part : state) part.zero_();
  }
}

int64_t KvCache::num_bytes() const {
  if (store_ != nullptr) return store_->num_bytes();
  size_t bytes = keys_.nbytes() + values_.nbytes();
  for (const std::vector<at::Tensor>& state : states_) {
    for (const at::Tensor& part : state) bytes += part.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace weft::nn
