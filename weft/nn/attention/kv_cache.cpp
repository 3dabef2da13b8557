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
    : dtype_(options.dtype),
      capacity_(checked_capacity(options.capacity)),
      batch_(options.batch),
      layers_(static_cast<size_t>(options.num_layers)) {
  make_states(options);
  // In the order of their first layers.
  std::vector<std::pair<KvHeads, std::vector<size_t>>> alike;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    if (layer < states_.size() && !states_[layer].empty()) continue;
    const KvHeads usual = {options.num_kv_heads, options.head_dim};
    const KvHeads heads = options.heads.empty() ? usual : options.heads.at(layer);
    if (!options.heads.empty() && heads.count == 0) continue;
    const auto is_same = [&](const auto& group) { return group.first == heads; };
    auto found = std::ranges::find_if(alike, is_same);
    if (found == alike.end()) {
      alike.emplace_back(heads, std::vector<size_t>());
      found = alike.end() - 1;
    }
    found->second.push_back(layer);
  }
  for (const auto& [heads, members] : alike) make_group(options, heads, members);
}

void KvCache::make_group(const Options& options, const KvHeads& heads,
                         const std::vector<size_t>& members) {
  std::array<int64_t, 5> shape = {static_cast<int64_t>(members.size()), options.batch, heads.count,
                                  capacity_, heads.head_dim};
  Group& group = groups_.emplace_back();
  group.keys = at::empty(shape, dtype_);
  shape[4] = options.value_dim.value_or(heads.head_dim);
  group.values = at::empty(shape, dtype_);
  for (size_t i = 0; i < members.size(); ++i) {
    Layer& layer = layers_[members[i]];
    layer.keys = group.keys.select(0, static_cast<int64_t>(i));
    layer.values = group.values.select(0, static_cast<int64_t>(i));
    layer.keys_data = static_cast<std::byte*>(layer.keys.mutable_data_ptr());
    layer.values_data = static_cast<std::byte*>(layer.values.mutable_data_ptr());
  }
}

void KvCache::make_states(const Options& options) {
  for (const StateSizes& sizes : options.states) {
    std::vector<at::Tensor>& state = states_.emplace_back();
    for (std::vector<int64_t> shape : sizes) {
      shape.insert(shape.begin(), options.batch);
      state.push_back(at::zeros(shape));
    }
  }
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
  const Layer& own = layers_[static_cast<size_t>(layer)];
  own.keys.narrow(2, length_, tokens).copy_(k_BkTH);
  if (own.values.numel() > 0) own.values.narrow(2, length_, tokens).copy_(v_BkTH);
  return appended(layer, tokens);
}

std::pair<at::Tensor, at::Tensor> KvCache::appended(int64_t layer, int64_t tokens) const {
  const Layer& own = layers_[static_cast<size_t>(layer)];
  return {own.keys.narrow(2, 0, length_ + tokens), own.values.narrow(2, 0, length_ + tokens)};
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
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Group &own = groups_[i], &other = from.groups_.at(i);
    own.keys.narrow(3, length_, count).copy_(other.keys.narrow(3, start, count));
    own.values.narrow(3, length_, count).copy_(other.values.narrow(3, start, count));
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
  size_t bytes = 0;
  for (const Group& group : groups_) bytes += group.keys.nbytes() + group.values.nbytes();
  for (const std::vector<at::Tensor>& state : states_) {
    for (const at::Tensor& part : state) bytes += part.nbytes();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace weft::nn
