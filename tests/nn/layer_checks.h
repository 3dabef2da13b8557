#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "tests/ops/tensor_checks.h"
#include "weft/dist/backends/group_handles.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::test {

/// How far a layer that is cut may be from the whole, relative to the largest value: float32 1e-5,
/// bfloat16 some of its roundings, of 2^-8 each.
inline double layer_tolerance(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-12;
  return dtype == at::kFloat ? 1e-5 : 0x1p-6;
}

inline const std::vector<at::ScalarType>& layer_dtypes() {
  static const std::vector<at::ScalarType> all = {at::kDouble, at::kFloat, at::kBFloat16};
  return all;
}

/// Fails unless `x` has the same bits on all ranks.
inline void expect_equal_on_all_ranks(const at::Tensor& x, const dist::Group& group,
                                      const std::string& what) {
  const at::Tensor all = group.all_gather(x.detach().unsqueeze(0), 0);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    EXPECT_TRUE(at::equal(all[rank], x.detach())) << what << " differs from rank " << rank;
  }
}

/// The rank's ranges of a whole along a layout's dim, or along `dim` if it is given.
inline at::Tensor own_ranges(const at::Tensor& whole, const nn::ParallelLinearImpl& layer,
                             int64_t dim) {
  std::vector<at::Tensor> pieces;
  for (const shard::Range& range : layer.layout().of(layer.group().rank())) {
    pieces.push_back(whole.detach().narrow(dim, range.start, range.length));
  }
  return at::cat(pieces, dim);
}

/// torch's own layer with the whole's weight and bias, in float64: the reference.
inline torch::nn::Linear whole_linear(const nn::ParallelLinearImpl& layer) {
  const at::Tensor weight = layer.master_weight(), bias = layer.master_bias();
  torch::nn::Linear whole(
      torch::nn::LinearOptions(weight.size(1), weight.size(0)).bias(bias.defined()));
  whole->to(at::kDouble);
  const at::NoGradGuard no_grad;
  whole->weight.copy_(weight);
  if (bias.defined()) whole->bias.copy_(bias);
  return whole;
}

/// A group that counts the all-reduces that go through it. In a group of one there are none.
class CountedGroup {
 public:
  explicit CountedGroup(const dist::Group& group)
      : counter_(std::make_shared<Counter>(group)), group_(group.name(), counted(group)) {}

  const dist::Group& group() const { return group_; }
  /// How many since the last call.
  int take_count() { return std::exchange(counter_->count, 0); }

 private:
  struct Counter : dist::InlineCollectives {
    explicit Counter(dist::Group g) : group(std::move(g)) {}
    void all_reduce_inline(at::Tensor& x, dist::ReduceOp op) override {
      ++count;
      group.all_reduce(x, op);
    }
    void all_gather_inline(at::Tensor& whole, const at::Tensor& shard) override {
      group.all_gather_into(whole, shard);
    }
    void reduce_scatter_inline(at::Tensor& shard, const at::Tensor& whole) override {
      group.reduce_scatter_into(shard, whole);
    }
    void broadcast_inline(at::Tensor& x, int64_t root) override { group.broadcast(x, root); }
    dist::Group group;
    int count = 0;
  };

  dist::GroupHandles counted(const dist::Group& group) const {
    dist::GroupHandles handles = group.handles();
    handles.inline_collectives = counter_;
    return handles;
  }

  std::shared_ptr<Counter> counter_;
  dist::Group group_;
};

}  // namespace weft::test
