#include "weft/nn/ordered/ordered_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/nn/ordered/product_kernel.h"
#include "weft/nn/ordered/sequence_sums.h"

namespace weft::nn::ordered {
namespace {

// A block of sums, a part of the second level cache; and a panel of b's columns that stands in the
// first while all rows of the block use it.
constexpr int64_t kMostRows = 384, kMostColumns = 128, kPanel = 64, kDepth = 96;
// Columns come in multiples of this.
constexpr int64_t kUnit = 16;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Steps between places instead of pieces: sums that wait for others keep one each.
struct Turn {
  /// Where the piece is summed, and what is added up once it is.
  int64_t place = 0;
  std::vector<shard::SumStep> merges;
};

struct Schedule {
  std::vector<Turn> turns;
  int64_t num_places = 0;
  /// By node.
  std::vector<int64_t> node_places;
};

Schedule schedule_of(const shard::SumPlan& plan) {
  Schedule schedule;
  std::vector<int64_t> places, free;
  size_t next = 0;
  for (int64_t piece = 0; piece < std::ssize(plan.pieces); ++piece) {
    if (free.empty()) free.push_back(schedule.num_places++);
    Turn turn{free.back(), {}};
    free.pop_back();
    places.push_back(turn.place);
    for (; next < plan.steps.size() && plan.steps[next].from <= piece; ++next) {
      const auto at = [&](int64_t of) { return places[static_cast<size_t>(of)]; };
      turn.merges.push_back({at(plan.steps[next].to), at(plan.steps[next].from)});
      free.push_back(turn.merges.back().from);
    }
    schedule.turns.push_back(std::move(turn));
  }
  for (const int64_t node : plan.nodes) {
    schedule.node_places.push_back(places[static_cast<size_t>(node)]);
  }
  return schedule;
}

// A block of the product's rows and columns, computed by one thread.
class Block {
 public:
  // `to` as multiply's.
  Block(const Product& product, const Schedule& schedule, shard::Range rows, shard::Range columns,
        float* to)
      : product_(product),
        schedule_(schedule),
        rows_(rows),
        columns_(columns),
        width_(round_up(columns.length, kUnit)),
        // An odd number of cache lines, so that neighbours in a column lie in different sets.
        height_(round_up(rows.length, 2 * kUnit) + kUnit),
        is_in_place_(schedule.num_places == 1 && width_ == columns.length),
        stride_(is_in_place_ ? product.columns : width_),
        memory_(at::empty(
            {(is_in_place_ ? 0 : schedule.num_places * size()) + kDepth * (kPanel + height_)},
            at::kFloat)),
        packed_(memory_.mutable_data_ptr<float>()),
        sums_(is_in_place_ ? to + rows.start * product.columns + columns.start
                           : packed_ + kDepth * (kPanel + height_)),
        to_(to) {}

  void compute() {
    for (size_t i = 0; i < schedule_.turns.size(); ++i) {
      const Turn& turn = schedule_.turns[i];
      float* const sums = at(turn.place);
      for (int64_t i = 0; i < rows_.length; ++i) std::fill_n(sums + i * stride_, width_, 0.F);
      for (const Stretch& stretch : product_.pieces[i]) add(stretch, sums);
      if (!product_.added.empty()) add_rows(product_.added[i], sums);
      for (const shard::SumStep& merge : turn.merges) {
        float* to = at(merge.to);
        const float* from = at(merge.from);
        for (int64_t j = 0; j < size(); ++j) to[j] += from[j];
      }
    }
    if (!is_in_place_) write();
  }

 private:
  void write() const {
    float* to = to_ + rows_.start * product_.columns + columns_.start;
    for (const int64_t place : schedule_.node_places) {
      for (int64_t i = 0; i < rows_.length; ++i) {
        std::copy_n(at(place) + i * width_, columns_.length, to + i * product_.columns);
      }
      to += product_.rows * product_.columns;
    }
  }

  int64_t size() const { return rows_.length * width_; }
  float* at(int64_t place) const { return sums_ + place * size(); }

  void add(const Stretch& stretch, float* sums) const {
    const ProductKernel& kernel = active_product();
    for (int64_t k = 0; k < stretch.depth; k += kDepth) {
      const int64_t depth = std::min(kDepth, stretch.depth - k);
      const kernels::Operand<float> a = operand(stretch.a, k, depth);
      for (int64_t j = 0; j < width_; j += kPanel) {
        const int64_t width = std::min(kPanel, width_ - j);
        pack(stretch.b, {k, depth}, {j, std::min(width, columns_.length - j)}, width);
        kernel.multiply(a, {packed_, width}, rows_.length, width, depth, {sums + j, stride_});
      }
    }
  }

  void add_rows(const std::vector<AddedRow>& added, float* sums) const {
    for (auto row = std::ranges::lower_bound(added, rows_.start, {}, &AddedRow::to);
         row != added.end() && row->to < rows_.end(); ++row) {
      const float* from = product_.addends + row->from * product_.columns + columns_.start;
      float* const to = sums + (row->to - rows_.start) * stride_;
      for (int64_t j = 0; j < columns_.length; ++j) to[j] += from[j];
    }
  }

  // Columns k and on of a's rows of this block. Those that lie far apart are brought together.
  kernels::Operand<float> operand(const Strided& a, int64_t k, int64_t depth) const {
    const float* from = a.data + rows_.start * a.row + k * a.column;
    if (a.row != 1 || a.column == 1) return {from, a.row, a.column};
    float* const to = packed_ + kDepth * kPanel;
    for (int64_t i = 0; i < depth; ++i) {
      std::copy_n(from + i * a.column, rows_.length, to + i * height_);
    }
    return {to, 1, height_};
  }

  // Rows and columns (of this block) of b as the kernel reads them: `width` of them, with zeros
  // behind the last column.
  void pack(const Strided& b, shard::Range rows, shard::Range columns, int64_t width) const {
    const float* from = b.data + rows.start * b.row + (columns_.start + columns.start) * b.column;
    float* const to = packed_;
    if (columns.length < width) std::fill_n(to, rows.length * width, 0.F);
    if (b.column == 1) {
      for (int64_t i = 0; i < rows.length; ++i) {
        std::copy_n(from + i * b.row, columns.length, to + i * width);
      }
      return;
    }
    // In squares, so that both sides stay in cache lines that are there.
    for (int64_t first = 0; first < columns.length; first += kUnit) {
      const int64_t last = std::min(first + kUnit, columns.length);
      for (int64_t i = 0; i < rows.length; ++i) {
        for (int64_t j = first; j < last; ++j) {
          to[i * width + j] = from[i * b.row + j * b.column];
        }
      }
    }
  }

  const Product& product_;
  const Schedule& schedule_;
  shard::Range rows_, columns_;
  int64_t width_;
  int64_t height_;
  // A single sum of whole vectors needs no place beside the product itself.
  bool is_in_place_;
  // Of rows of sums.
  int64_t stride_;
  at::Tensor memory_;
  // A panel of b, and behind it the rows of a that lay far apart.
  float* packed_;
  float* sums_;
  float* to_;
};

// All places of a block share the cache.
int64_t rows_at_once(int64_t places) {
  constexpr int64_t kLeastRows = 96;
  return std::max(kLeastRows, round_up(kMostRows / std::max<int64_t>(1, places), kUnit));
}

// Enough blocks to keep the threads at work.
int64_t columns_at_once(const Product& product, int64_t row_blocks) {
  constexpr int64_t kBlocksPerThread = 4;
  const int64_t wanted = kBlocksPerThread * at::get_num_threads();
  const int64_t share = round_up(product.columns * row_blocks / wanted + 1, kPanel);
  return std::clamp(share, kPanel, kMostColumns);
}

}  // namespace

Strided plain(const at::Tensor& x_ij) { return {x_ij.const_data_ptr<float>(), x_ij.size(1), 1}; }
Strided turned(const at::Tensor& x_ij) { return {x_ij.const_data_ptr<float>(), 1, x_ij.size(1)}; }

Product gradient_product(const at::Tensor& g_Tn, const at::Tensor& x_TD,
                         const shard::SumPlan& order) {
  Product product{g_Tn.size(1), x_TD.size(1), {}};
  const int64_t rows = rows_of_each(g_Tn.size(0), order);
  for (int64_t first = 0; first < g_Tn.size(0); first += rows) {
    const at::Tensor g = g_Tn.narrow(0, first, rows), x = x_TD.narrow(0, first, rows);
    product.pieces.push_back({{turned(g), plain(x), rows}});
  }
  return product;
}

void multiply(const Product& product, const shard::SumPlan& plan, float* to) {
  core::check<core::InternalError>(product.pieces.size() == plan.pieces.size(),
                                   "nn.ordered: ", product.pieces.size(), " pieces, expected ",
                                   plan.pieces.size());
  const Schedule schedule = schedule_of(plan);
  const int64_t most_rows = rows_at_once(schedule.num_places);
  const int64_t row_blocks = (product.rows + most_rows - 1) / most_rows;
  const int64_t rows = (product.rows + row_blocks - 1) / std::max<int64_t>(1, row_blocks);
  const int64_t columns = columns_at_once(product, row_blocks);
  const int64_t column_blocks = (product.columns + columns - 1) / columns;
  at::parallel_for(0, row_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % row_blocks * rows, column = i / row_blocks * columns;
      Block block(product, schedule, {row, std::min(rows, product.rows - row)},
                  {column, std::min(columns, product.columns - column)}, to);
      block.compute();
    }
  });
}

void multiply(const Product& product, float* to) {
  shard::SumPlan whole;
  whole.pieces = {{0, 0}};
  whole.nodes = {0};
  whole.slots = 1;
  multiply(product, whole, to);
}

}  // namespace weft::nn::ordered
