#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/shard/sum_order.h"

namespace weft::nn::ordered {

/// A matrix whose number (i, j) is data[i * row + j * column].
struct Strided {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t column = 0;
};

/// `depth` summands of every sum of a product: a(i, k) * b(k, j).
struct Stretch {
  Strided a, b;
  int64_t depth = 0;
};

/// A row that is added to one of a product's: row `to` gains addends' row `from`.
struct AddedRow {
  int64_t to = 0;
  int64_t from = 0;
};

/// A product [rows, columns] whose summands come in pieces: each piece's are added one after
/// another, stretch by stretch.
struct Product {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<std::vector<Stretch>> pieces;
  /// Rows of `columns` numbers, end to end, and by piece those that are added behind its stretches:
  /// ascending by AddedRow::to. No pieces: none.
  const float* addends = nullptr;
  std::vector<std::vector<AddedRow>> added = {};
};

/// x_ij, [i, j] float32 without gaps, as it lies, and turned: (j, i).
Strided plain(const at::Tensor& x_ij);
Strided turned(const at::Tensor& x_ij);

/// g^T x of rows of `order`'s sequences, a piece for each of these: g_Tn, x_TD float32 without
/// gaps, which outlive the product.
Product gradient_product(const at::Tensor& g_Tn, const at::Tensor& x_TD,
                         const shard::SumPlan& order);

/// The product's plan.nodes, [rows, columns] each, end to end: pieces are added by plan.steps. Bits
/// of a sum depend on its own numbers, the pieces and the steps alone, not on rows, columns, where
/// the matrices lie or threads. `to` is the caller's and overlaps with no factor.
void multiply(const Product& product, const shard::SumPlan& plan, float* to);
/// The same of a product of one piece, which is one sum.
void multiply(const Product& product, float* to);

}  // namespace weft::nn::ordered
