#include "weft/nn/attention/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/kernels/select.h"

namespace weft::nn {

namespace {

int64_t checked_capacity(int64_t capacity) {
  core::check<core::ConfigError>(capacity >= 1, "nn.KvCache: capacity ", capacity,
                                 ", expected at least 1 position");
  return capacity;
}

// How large the last dim of keys or values is.
int64_t width_of(at::ScalarType dtype, int64_t head_dim) {
  return dtype == at::kChar ? KvCache::row_bytes(dtype, head_dim) : head_dim;
}

void check_blocks(int64_t head_dim) {
  core::check<core::ConfigError>(head_dim % kernels::kByteBlock == 0, "nn.KvCache: heads of ",
                                 head_dim, " numbers in 8 bits, expected a multiple of ",
                                 kernels::kByteBlock, "; keep them in 16 bits");
}

}  // namespace

int64_t KvCache::row_bytes(at::ScalarType dtype, int64_t head_dim) {
  if (dtype != at::kChar) return head_dim * static_cast<int64_t>(c10::elementSize(dtype));
  return head_dim / kernels::kByteBlock * static_cast<int64_t>(sizeof(kernels::ByteBlock));
}

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
  const int64_t value_dim = options.value_dim.value_or(heads.head_dim);
  if (dtype_ == at::kChar) {
    for (const int64_t dim : {heads.head_dim, value_dim}) check_blocks(dim);
  }
  std::array<int64_t, 5> shape = {static_cast<int64_t>(members.size()), options.batch, heads.count,
                                  capacity_, width_of(dtype_, heads.head_dim)};
  Group& group = groups_.emplace_back();
  group.members = members;
  group.keys = at::empty(shape, dtype_);
  shape[4] = width_of(dtype_, value_dim);
  group.values = at::empty(shape, dtype_);
  set_layers(group);
}

void KvCache::set_layers(const Group& group) {
  for (size_t i = 0; i < group.members.size(); ++i) {
    Layer& layer = layers_[group.members[i]];
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
  write(own.keys, length_, k_BkTH);
  if (own.values.numel() > 0) write(own.values, length_, v_BkTH);
  return appended(layer, tokens);
}

void KvCache::write(const at::Tensor& kept, int64_t start, const at::Tensor& rows_BkTH) const {
  const int64_t tokens = rows_BkTH.size(2);
  if (dtype_ != at::kChar) {
    kept.narrow(2, start, tokens).copy_(rows_BkTH);
    return;
  }
  const at::Tensor numbers = rows_BkTH.to(at::kFloat).contiguous();
  const at::Tensor bytes =
      at::empty({kept.size(0), kept.size(1), tokens, kept.size(3)}, kept.options());
  kernels::active_kernel().byte_cache.narrow(numbers.const_data_ptr<float>(),
                                             bytes.mutable_data_ptr(), numbers.numel());
  kept.narrow(2, start, tokens).copy_(bytes);
}

at::Tensor KvCache::read(const at::Tensor& kept, int64_t count) const {
  const at::Tensor rows = kept.narrow(2, 0, count);
  if (dtype_ != at::kChar || rows.numel() == 0) return rows;
  const at::Tensor bytes = rows.contiguous();
  constexpr auto kBlockBytes = static_cast<int64_t>(sizeof(kernels::ByteBlock));
  const int64_t head_dim = bytes.size(3) / kBlockBytes * kernels::kByteBlock;
  at::Tensor numbers = at::empty({bytes.size(0), bytes.size(1), count, head_dim}, at::kFloat);
  kernels::active_kernel().byte_cache.widen(bytes.const_data_ptr(),
                                            numbers.mutable_data_ptr<float>(), numbers.numel());
  return numbers;
}

std::pair<at::Tensor, at::Tensor> KvCache::appended(int64_t layer, int64_t tokens) const {
  const Layer& own = layers_[static_cast<size_t>(layer)];
  return {read(own.keys, length_ + tokens), read(own.values, length_ + tokens)};
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

void KvCache::grow(int64_t capacity) {
  core::check<core::InternalError>(capacity >= capacity_ && store_ == nullptr,
                                   "nn.KvCache.grow: to ", capacity, " positions from ", capacity_,
                                   store_ == nullptr ? "" : " on a GPU");
  for (Group& group : groups_) {
    for (at::Tensor* const kept : {&group.keys, &group.values}) {
      std::vector<int64_t> sizes = kept->sizes().vec();
      sizes[3] = capacity;
      const at::Tensor grown = at::empty(sizes, kept->options());
      grown.narrow(3, 0, length_).copy_(kept->narrow(3, 0, length_));
      *kept = grown;
      // Lets go of the memory that was, before the other tensor takes more.
      set_layers(group);
    }
  }
  capacity_ = capacity;
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
