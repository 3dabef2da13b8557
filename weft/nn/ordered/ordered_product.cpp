#include "weft/nn/ordered/ordered_product.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/nn/ordered/product_kernel.h"

namespace weft::nn::ordered {
namespace {

// A block of sums and what stands at once of its factors: a part of the second level cache, and of
// the first.
constexpr int64_t kMostRows = 384, kMostColumns = 128, kDepth = 128;
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
  Block(const Product& product, const Schedule& schedule, shard::Range rows, shard::Range columns)
      : product_(product),
        schedule_(schedule),
        rows_(rows),
        columns_(columns),
        width_(round_up(columns.length, kUnit)),
        memory_(at::empty({schedule.num_places * size() + kDepth * width_}, at::kFloat)) {}

  void compute() {
    for (size_t i = 0; i < schedule_.turns.size(); ++i) {
      const Turn& turn = schedule_.turns[i];
      std::fill_n(at(turn.place), size(), 0.F);
      for (const Stretch& stretch : product_.pieces[i]) add(stretch, at(turn.place));
      for (const shard::SumStep& merge : turn.merges) {
        float* to = at(merge.to);
        const float* from = at(merge.from);
        for (int64_t j = 0; j < size(); ++j) to[j] += from[j];
      }
    }
  }

  void write(float* to) const {
    for (const int64_t place : schedule_.node_places) {
      for (int64_t i = 0; i < rows_.length; ++i) {
        std::copy_n(at(place) + i * width_, columns_.length,
                    to + (rows_.start + i) * product_.columns + columns_.start);
      }
      to += product_.rows * product_.columns;
    }
  }

 private:
  int64_t size() const { return rows_.length * width_; }
  float* at(int64_t place) const { return memory_.mutable_data_ptr<float>() + place * size(); }

  void add(const Stretch& stretch, float* sums) const {
    const ProductKernel& kernel = active_product();
    for (int64_t k = 0; k < stretch.depth; k += kDepth) {
      const int64_t depth = std::min(kDepth, stretch.depth - k);
      const Strided& a = stretch.a;
      kernel.multiply({a.data + rows_.start * a.row + k * a.column, a.row, a.column},
                      factor(stretch.b, k, depth), rows_.length, width_, depth, {sums, width_});
    }
  }

  // Rows k and on of b as the kernel reads them, with zeros behind the last column.
  kernels::Factor<float> factor(const Strided& b, int64_t k, int64_t depth) const {
    const float* from = b.data + k * b.row + columns_.start * b.column;
    if (b.column == 1 && width_ == columns_.length) return {from, b.row};
    float* const to = at(schedule_.num_places);
    for (int64_t i = 0; i < depth; ++i) {
      std::fill(to + i * width_ + columns_.length, to + (i + 1) * width_, 0.F);
    }
    if (b.column == 1) {
      for (int64_t i = 0; i < depth; ++i) {
        std::copy_n(from + i * b.row, columns_.length, to + i * width_);
      }
    } else {
      transpose(from, b, depth, to);
    }
    return {to, width_};
  }

  // In squares, so that both sides stay in cache lines that are there.
  void transpose(const float* from, const Strided& b, int64_t depth, float* to) const {
    for (int64_t first = 0; first < columns_.length; first += kUnit) {
      const int64_t last = std::min(first + kUnit, columns_.length);
      for (int64_t i = 0; i < depth; ++i) {
        for (int64_t j = first; j < last; ++j) {
          to[i * width_ + j] = from[i * b.row + j * b.column];
        }
      }
    }
  }

  const Product& product_;
  const Schedule& schedule_;
  shard::Range rows_, columns_;
  int64_t width_;
  at::Tensor memory_;
};

// Blocks of the product's size, enough to keep the threads at work.
int64_t columns_at_once(const Product& product, int64_t row_blocks) {
  constexpr int64_t kBlocksPerThread = 4, kFewest = 64;
  const int64_t wanted = kBlocksPerThread * at::get_num_threads();
  const int64_t share = round_up(product.columns * row_blocks / wanted + 1, kUnit);
  return std::clamp(share, kFewest, kMostColumns);
}

}  // namespace

void multiply(const Product& product, const shard::SumPlan& plan, float* to) {
  core::check<core::InternalError>(product.pieces.size() == plan.pieces.size(),
                                   "nn.ordered: ", product.pieces.size(), " pieces, expected ",
                                   plan.pieces.size());
  const Schedule schedule = schedule_of(plan);
  const int64_t row_blocks = (product.rows + kMostRows - 1) / kMostRows;
  const int64_t rows = (product.rows + row_blocks - 1) / std::max<int64_t>(1, row_blocks);
  const int64_t columns = columns_at_once(product, row_blocks);
  const int64_t column_blocks = (product.columns + columns - 1) / columns;
  at::parallel_for(0, row_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % row_blocks * rows, column = i / row_blocks * columns;
      Block block(product, schedule, {row, std::min(rows, product.rows - row)},
                  {column, std::min(columns, product.columns - column)});
      block.compute();
      block.write(to);
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
