#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/nn/linear/linear_like.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::nn {

/// ShardableLinear::column_unit of a quantized weight of these sizes.
int64_t column_unit_of(int64_t in_features, int64_t group_size, int64_t n);

/// A quantized weight of any mode; buffers "weight" (packed), "scales" and, where there are,
/// "offsets". The weight is frozen; gradients pass through to the input.
class QuantizedLinearImpl : public Cloned<QuantizedLinearImpl, ShardableLinear> {
 public:
  /// Keeps the tensors given. `whole_group_size` is the group size of the whole if this is a shard
  /// whose own is a divisor of it; 0: the weight's own. Throws ShapeError as
  /// quant::check_quantized does, or if bias does not fit.
  explicit QuantizedLinearImpl(quant::QuantizedMatrix weight, at::Tensor bias = {},
                               int64_t whole_group_size = 0);
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return quant::in_features(weight); }
  int64_t out_features() const override { return quant::out_features(weight); }
  int64_t weight_bytes() const override { return quant::num_bytes(weight); }
  at::Tensor bias_or_undefined() const override { return bias; }
  at::Tensor dense_weight() const override;
  int64_t column_unit(int64_t n) const override;
  std::shared_ptr<LinearLike> shard(const LinearCut& cut) const override;
  std::shared_ptr<LinearLike> unshard(const LinearCut& cut, const at::Tensor& bias) const override;
  /// Only the bias takes another dtype: packed numbers, scales and offsets are the weight's values,
  /// and it multiplies inputs of any floating dtype.
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  using torch::nn::Module::to;
  /// The group size that the whole had; a shard's own may be a divisor of it.
  int64_t whole_group_size() const { return whole_group_size_; }

  quant::QuantizedMatrix weight;
  at::Tensor bias;

 private:
  friend class Cloned<QuantizedLinearImpl, ShardableLinear>;
  std::shared_ptr<QuantizedLinearImpl> copied(const std::optional<torch::Device>& device) const;

  int64_t whole_group_size_ = 0;
};
TORCH_MODULE(QuantizedLinear);

}  // namespace weft::nn
