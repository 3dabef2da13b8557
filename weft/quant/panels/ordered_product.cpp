#include "weft/quant/panels/ordered_product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/memory/scratch.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::kBlockColumns;
using kernels::kPanelRows;

// Panels that a token reads together, and rows whose sums stay in the second level cache.
constexpr int64_t kPanels = 4;
constexpr int64_t kRows = 32;
static_assert(kRows % kernels::kTileTokens == 0);

// Some columns of w, of tokens as long as its rows.
kernels::Panels columns_of(const PanelView& w, const shard::Range& columns) {
  kernels::Panels piece = w.panels;
  piece.row_blocks = w.panels.num_blocks;
  piece.first_block = columns.start / kBlockColumns;
  piece.num_blocks = columns.length / kBlockColumns;
  return piece;
}

// Rows [first, first + count) of a group of x, first a multiple of kTileTokens.
kernels::RoundedInputs codes_of(const PanelInputs& x, int64_t group, int64_t first, int64_t count) {
  kernels::RoundedInputs codes = x.codes(group);
  const int64_t in = x.in_features(), blocks = in / kBlockColumns;
  codes.codes += first * in;
  if (codes.lower_codes != nullptr) codes.lower_codes += first * in;
  codes.scales += first * blocks;
  codes.sums += 2 * first * blocks;
  codes.tokens = count;
  return codes;
}

void add(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

void check_fit(const PanelInputs& x, const PanelView& w, const shard::SumPlan& plan) {
  const bool is_dense = w.panels.form.is_dense();
  const bool has_form = is_dense ? w.short_numbers == nullptr &&
                                       (x.wants().numbers || x.wants().bfloat16) && x.is_exact()
                                 : x.has_codes() && x.is_exact();
  check<ShapeError>(has_form && x.in_features() == w.in_features(),
                    "quant.multiply_ordered: rows of ", x.in_features(), ", expected ",
                    w.in_features(), " in the form that an exact matrix wants");
  check<ShapeError>(w.first_panel == 0, "quant.multiply_ordered: rows from panel ", w.first_panel,
                    " on, expected a whole matrix");
  for (const shard::Range& piece : plan.pieces) {
    check<ShapeError>(piece.start % kBlockColumns == 0 && piece.length % kBlockColumns == 0,
                      "quant.multiply_ordered: a piece of ", piece.length, " columns from ",
                      piece.start, ", expected whole blocks of ", kBlockColumns);
  }
}

// One product, for some panels and rows at a time: their pieces' sums stay in the cache.
class ProductInPieces {
 public:
  ProductInPieces(const kernels::PanelKernel& kernel, const PanelInputs& x,
                  const OrderedProduct& product, const shard::SumPlan& plan)
      : kernel_(kernel), x_(x), plan_(plan), y_(product.y), group_(product.group) {
    for (const shard::Range& piece : plan.pieces) pieces_.push_back(columns_of(product.w, piece));
  }

  // Panels [first, end) for all rows.
  void run(int64_t first, int64_t end) const {
    const int64_t rows = x_.num_rows(group_);
    for (; first < end; first += kPanels) {
      for (int64_t row = 0; row < rows; row += kRows) {
        run_rows({row, std::min(kRows, rows - row)}, first, std::min(kPanels, end - first));
      }
    }
  }

 private:
  void run_rows(const shard::Range& rows, int64_t first, int64_t count) const {
    thread_local core::Scratch<float> memory;
    const int64_t width = count * kPanelRows, size = rows.length * width;
    float* const sums = memory.make_room(static_cast<int64_t>(pieces_.size()) * size);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      multiply(pieces_[i], rows, first, count, {sums + static_cast<int64_t>(i) * size, width});
    }
    for (const shard::SumStep& step : plan_.steps) {
      add(sums + step.from * size, sums + step.to * size, size);
    }
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const float* const node = sums + plan_.nodes[i] * size;
      float* const to = y_.data + static_cast<int64_t>(i) * y_.node_stride + first * kPanelRows;
      for (int64_t row = 0; row < rows.length; ++row) {
        std::copy_n(node + row * width, width, to + (rows.start + row) * y_.row_stride);
      }
    }
  }

  void multiply(const kernels::Panels& piece, const shard::Range& rows, int64_t first,
                int64_t count, const kernels::PanelOutputs& y) const {
    if (piece.form.is_dense()) return multiply_plain(piece, rows, first, count, y);
    kernel_.multiply(piece, first, count, codes_of(x_, group_, rows.start, rows.length), y);
  }

  // A panel has what a row's blocks share before them; plain numbers share nothing, so that some
  // columns are panels of their own, far apart.
  void multiply_plain(kernels::Panels piece, const shard::Range& rows, int64_t first, int64_t count,
                      const kernels::PanelOutputs& y) const {
    const int64_t column = piece.first_block * kBlockColumns;
    piece.data += piece.first_block * piece.form.block_bytes();
    piece.first_block = 0;
    const kernels::DenseInputs all = x_.numbers(group_);
    const float* const x = all.data + rows.start * all.stride + column;
    kernel_.multiply_dense(piece, first, count, {x, all.stride, rows.length}, y);
  }

  const kernels::PanelKernel& kernel_;
  const PanelInputs& x_;
  const shard::SumPlan& plan_;
  const NodeOutputs& y_;
  int64_t group_;
  std::vector<kernels::Panels> pieces_;
};

}  // namespace

// As quant::multiply: a panel falls to the thread that the work of its first row falls to.
void multiply_ordered(const kernels::PanelKernel& kernel, const PanelInputs& x,
                      std::span<const OrderedProduct> products, const shard::SumPlan& plan) {
  int64_t work = 0;
  for (const OrderedProduct& each : products) {
    check_fit(x, each.w, plan);
    work += each.w.num_panels * x.num_rows(each.group);
  }
  const int64_t grain = rows_per_thread(kPanelRows * x.in_features());
  at::parallel_for(0, work, grain, [&](int64_t begin, int64_t end) {
    int64_t start = 0;
    for (const OrderedProduct& each : products) {
      const int64_t count = each.w.num_panels, rows = x.num_rows(each.group);
      if (rows == 0) continue;
      const auto panel_at = [&](int64_t at) {
        return std::clamp((at - start + rows - 1) / rows, int64_t{0}, count);
      };
      const int64_t from = panel_at(begin), to = panel_at(end);
      start += count * rows;
      if (from < to) ProductInPieces(kernel, x, each, plan).run(from, to);
    }
  });
}

}  // namespace weft::quant
