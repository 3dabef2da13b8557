#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace weft::nn {

/// Keys and values that lie where libtorch's CPU tensors can't, on a GPU. Whoever made it reads and
/// writes them.
class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual int64_t num_bytes() const = 0;
  /// Copies positions start to start + count of `from`, a store of the same pass and batch, to `to`
  /// and behind it. All of them are within the capacities.
  virtual void copy(int64_t to, const KvStore& from, int64_t start, int64_t count) = 0;
};

/// The sizes of each tensor of a layer's state, of one sequence.
using StateSizes = std::vector<std::vector<int64_t>>;

/// The heads of a layer's keys and values.
struct KvHeads {
  int64_t count = 0;
  int64_t head_dim = 0;

  bool operator==(const KvHeads&) const = default;
};

/// What a model's layers keep of all positions so far, for this rank's heads: most of them keys and
/// values, a recurrent one a state of fixed size. One sequence batch; memory for `capacity`
/// positions is taken at the start, and for more by grow().
class KvCache {
 public:
  struct Options {
    /// Of those with keys and values and those with a state.
    int64_t num_layers = 0;
    int64_t batch = 1;
    int64_t num_kv_heads = 0;
    int64_t head_dim = 0;
    int64_t capacity = 0;
    /// kFloat, kHalf, kBFloat16, or kChar: 8 bits with a scale for each kernels::kByteBlock numbers
    /// of a head, of which heads then have a multiple.
    at::ScalarType dtype = at::kFloat;
    /// Of values, where it is not head_dim; 0: keys are all that is kept.
    std::optional<int64_t> value_dim = std::nullopt;
    /// By layer; empty for one with keys and values. Left out: all layers have these.
    std::vector<StateSizes> states = {};
    /// By layer, where they differ; a layer without heads keeps nothing. Left out: all layers have
    /// num_kv_heads of head_dim.
    std::vector<KvHeads> heads = {};
  };
  /// Throws ConfigError for a capacity below 1, and for heads that kChar does not take.
  explicit KvCache(const Options& options);
  /// Counts positions only; their keys and values are in `store`, and append throws ConfigError.
  KvCache(int64_t capacity, std::shared_ptr<KvStore> store);

  /// The state of a layer that has one, float32 [B, sizes...], which the layer overwrites; zeros
  /// before the first position.
  const std::vector<at::Tensor>& state(int64_t layer) const {
    return states_[static_cast<size_t>(layer)];
  }

  /// Appends k_BkTH and v_BkTH of `layer` to the positions so far and returns views of all, up to
  /// and with them, of dtype(); of kChar what they stand for, in float32. Without values v is not
  /// looked at. Throws ConfigError when they don't fit into the capacity.
  std::pair<at::Tensor, at::Tensor> append(int64_t layer, const at::Tensor& k_BkTH,
                                           const at::Tensor& v_BkTH);
  /// What append returned last: for a layer that reads the keys and values of another one, which
  /// has appended `tokens` more positions than are counted.
  std::pair<at::Tensor, at::Tensor> appended(int64_t layer, int64_t tokens) const;
  /// Throws ConfigError unless `tokens` more positions fit into the capacity.
  void check_room(int64_t tokens) const;
  /// Sequences of tensors; 0 where there is a store.
  int64_t batch() const { return batch_; }
  /// Memory for all positions of a layer, [B, k, capacity, H] of dtype() without gaps, row_bytes()
  /// for each: for a caller that writes the positions after length() itself. Of a layer without a
  /// state.
  void* keys(int64_t layer) const { return layers_[static_cast<size_t>(layer)].keys_data; }
  void* values(int64_t layer) const { return layers_[static_cast<size_t>(layer)].values_data; }
  /// Null where keys and values are tensors.
  KvStore* store() const { return store_.get(); }
  /// Counts `tokens` more positions, once all layers have appended theirs.
  void advance(int64_t tokens) { length_ += tokens; }
  /// Takes over positions start to start + count of `from`, behind its own: the same bits. Both are
  /// caches of one model as it is now, of equal batches. Throws ConfigError without room.
  void append_copy(const KvCache& from, int64_t start, int64_t count);
  /// Makes room for `capacity` positions, at least as many as now, and keeps those that there are,
  /// with the same bits; memory that keys() and values() named before is gone. Throws InternalError
  /// for a smaller capacity, and where there is a store.
  void grow(int64_t capacity);
  /// Forgets all positions from `length` on. Throws InternalError where most_kept(length) says that
  /// it can't.
  void truncate(int64_t length);
  /// The most positions, at most `length`, that truncate can leave: `length` itself, but with
  /// states either all positions or none.
  int64_t most_kept(int64_t length) const {
    return states_.empty() || length == length_ ? length : 0;
  }

  /// Bytes of so many numbers of a head in that type.
  static int64_t row_bytes(at::ScalarType dtype, int64_t head_dim);
  /// The type of keys and values.
  at::ScalarType dtype() const { return dtype_; }
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  int64_t num_bytes() const;

 private:
  /// Of the layers whose heads are alike: [members, B, k, capacity, H].
  struct Group {
    std::vector<size_t> members;
    at::Tensor keys, values;
  };
  void make_states(const Options& options);
  void make_group(const Options& options, const KvHeads& heads, const std::vector<size_t>& members);
  void set_layers(const Group& group);
  void clear_states();
  /// Of `kept`, [B, k, capacity, numbers or bytes], `count` positions from `start` on.
  void write(const at::Tensor& kept, int64_t start, const at::Tensor& rows_BkTH) const;
  at::Tensor read(const at::Tensor& kept, int64_t count) const;

  at::ScalarType dtype_ = at::kFloat;
  int64_t capacity_;
  int64_t batch_ = 0;
  int64_t length_ = 0;
  std::vector<Group> groups_;
  /// A layer's part of its group, [B, k, capacity, H], and where it lies; undefined without keys.
  struct Layer {
    at::Tensor keys, values;
    std::byte* keys_data = nullptr;
    std::byte* values_data = nullptr;
  };
  std::vector<Layer> layers_;
  /// By layer, where some have a state.
  std::vector<std::vector<at::Tensor>> states_;
  std::shared_ptr<KvStore> store_;
};

}  // namespace weft::nn
