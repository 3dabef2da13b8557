#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/dist/ordered_sum.h"
#include "weft/nn/ordered/sequence_sums.h"
#include "weft/shard/split.h"

/// Layers whose outputs and gradients have the same bits on any number of ranks, in float32 on the
/// CPU: sums over the ranks go by a dist::OrderedSum, and all others take what they add in an order
/// that depends on no rank. Shape letters: T tokens, D width, n this rank's features.
namespace weft::nn::ordered {

/// Some rows of one of several linears.
struct LinearRows {
  size_t linear = 0;
  shard::Range rows;
};

/// How the gradient of an input that several column parallel linears share is summed: for each of
/// sum->plan().pieces the rows of this rank's weights that belong to it. All ranks' pieces together
/// have every row of the wholes once: of rows that several ranks hold, one has them here.
struct InputSum {
  std::shared_ptr<dist::OrderedSum> sum;
  std::vector<std::vector<LinearRows>> pieces;
};

/// What a linear leaves for later of its weight's gradient, rows^T x (embedded).
struct HeldGradient {
  at::Tensor rows_Tn, x_TD;
};

/// x w^T + b of each column parallel linear. x: [..., D], whole, of `order`'s sequences; weights
/// [n, D], biases [n] or undefined, as many as weights. Rows that several ranks hold have equal
/// gradients on them if their outputs have. `held`, with one weight: backward leaves its gradient
/// there instead. Collective in backward. Throws ShapeError for what does not fit.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                const std::vector<at::Tensor>& biases,
                                const std::shared_ptr<const InputSum>& input,
                                const SequenceOrder& order,
                                const std::shared_ptr<HeldGradient>& held = nullptr);

/// x w^T of a row parallel linear, summed over the ranks. x: [..., n] of `order`'s sequences,
/// weight [D, n], n being what the sum's pieces cover. Collective. Throws ShapeError for what does
/// not fit.
at::Tensor reduced(const at::Tensor& x, const at::Tensor& weight,
                   const std::shared_ptr<dist::OrderedSum>& sum, const SequenceOrder& order);

/// y + bias, [..., D] of `order`'s sequences and [D], whole on every rank. Not collective.
at::Tensor with_bias(const at::Tensor& y, const at::Tensor& bias, const SequenceOrder& order);

}  // namespace weft::nn::ordered
