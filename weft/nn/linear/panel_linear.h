#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/dist/ordered_sum.h"
#include "weft/nn/linear/linear_like.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::nn {

/// A weight in the processor's order, for inference: on their way into a product with a quantized
/// one, activations are rounded to 8 or 16 bits (quant::panel_matmul). Buffer "weight" in that
/// order.
class PanelLinearImpl : public Cloned<PanelLinearImpl, LinearLike> {
 public:
  /// Keeps the tensors given. Throws ShapeError if bias does not fit.
  explicit PanelLinearImpl(quant::PanelMatrix weight, at::Tensor bias = {});
  /// Throws ConfigError for an input that needs a gradient.
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return weight.in_features; }
  int64_t out_features() const override { return weight.out_features; }
  int64_t weight_bytes() const override { return weight.num_bytes(); }
  at::Tensor bias_or_undefined() const override { return bias; }
  at::Tensor dense_weight() const override;
  /// Nothing takes another dtype: panels are bytes in the kernels' order, which add the bias in
  /// float32.
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  using torch::nn::Module::to;

  quant::PanelMatrix weight;
  at::Tensor bias;

 private:
  friend class Cloned<PanelLinearImpl, LinearLike>;
  std::shared_ptr<PanelLinearImpl> copied(const std::optional<torch::Device>& device) const;
};
TORCH_MODULE(PanelLinear);

/// How weights lie in panels.
struct PanelOptions {
  /// Of activations on their way into a product with a quantized weight: 8 or 16.
  int64_t activation_bits = 8;
  /// The same bits whatever part of a whole the weight is and however long sequences are:
  /// quant::PanelMatrix::is_exact, and quant::HalfPanels::kPlain.
  bool is_exact = false;
};

/// The same layer in panels; null if its weight doesn't fit (quant::fits_panels).
std::shared_ptr<LinearLike> in_panels(const LinearLike& linear, const PanelOptions& options);

/// A layer of panels and a bias of any floating type, or none.
std::shared_ptr<LinearLike> in_panels(quant::PanelMatrix weight, const at::Tensor& bias);

/// Replaces every linear of the module that fits (quant::fits_panels) by one in panels, one after
/// another, so that at most one weight is in memory twice. Others stay as they are. Returns how
/// many. Activations of quantized ones get `activation_bits`, 8 or 16. Not collective.
int64_t put_in_panels(torch::nn::Module& module, int64_t activation_bits = 8);

/// A row parallel linear whose sum has the same bits on any number of ranks. x: [..., this rank's
/// in], of which `sum` has the pieces. Returns [..., out] in x's dtype. Throws ConfigError unless
/// `linear` is a PanelLinear that is exact, ShapeError as quant::multiply_ordered. Collective over
/// the sum's group.
at::Tensor ordered_linear(const LinearLike& linear, const at::Tensor& x, dist::OrderedSum& sum);

}  // namespace weft::nn
