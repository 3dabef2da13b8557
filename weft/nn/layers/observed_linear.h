#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// Sums over the rows of a linear's inputs.
class InputSums {
 public:
  /// `takes_products`: also those of every two inputs.
  InputSums(int64_t in, bool takes_products);

  /// x: [..., in], floating.
  void add(const at::Tensor& x);
  /// Of products, for rows that were added: each counts `counts`, [rows].
  void add_products(const at::Tensor& x, const at::Tensor& counts);
  /// Adds to the products of every input with itself: counts [in].
  void add_to_diagonal(const at::Tensor& counts);
  /// Of squares, float64 [in].
  const at::Tensor& squares() const { return squares_; }
  /// Of products, float32 [in, in]; undefined if they are not taken.
  const at::Tensor& products() const { return products_; }
  /// Rows so far.
  int64_t count() const { return count_; }

 private:
  at::Tensor squares_;
  at::Tensor products_;
  int64_t count_ = 0;
};

/// Any inner linear, which also sums what it gets: for quantizers, which ask how large the inputs
/// are that multiply each column. On this rank alone; of a linear cut by columns these are the
/// rank's. Products are taken in backward, which passes through it even if nothing before it has
/// gradients: a row counts the mean square of the gradients of what the linear returned for it.
class ObservedLinearImpl : public LinearLike {
 public:
  /// `takes_products` as InputSums has it.
  ObservedLinearImpl(std::shared_ptr<LinearLike> inner, bool takes_products);

  at::Tensor forward(const at::Tensor& x) override;
  /// Of an embedding: each column of what it returns counts the squares of its gradients as
  /// products with itself.
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return inner_->in_features(); }
  int64_t out_features() const override { return inner_->out_features(); }
  int64_t weight_bytes() const override { return inner_->weight_bytes(); }
  at::Tensor bias_or_undefined() const override { return inner_->bias_or_undefined(); }
  at::Tensor dense_weight() const override { return inner_->dense_weight(); }

  const std::shared_ptr<LinearLike>& inner() const { return inner_; }
  const InputSums& sums() const { return sums_; }

 private:
  std::shared_ptr<LinearLike> inner_;
  InputSums sums_;
};
TORCH_MODULE(ObservedLinear);

}  // namespace weft::nn
