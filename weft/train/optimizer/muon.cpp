#include "weft/train/optimizer/muon.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "weft/core/error.h"
#include "weft/train/optimizer/elementwise.h"
#include "weft/train/optimizer/parameter_table.h"
#include "weft/train/slice_runs.h"

namespace weft::train {

using core::check;
using core::ConfigError;

namespace {

// Jordan's: steepest at 0, so that few iterations suffice.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kLeastNorm = 1e-7;

// The root mean square of AdamW's updates, as arXiv:2502.16982 found it.
constexpr double kAdamwSize = 0.2;

// What this rank has of a matrix.
struct MatrixPart {
  OwnedSlice owned;
  std::vector<SliceRun> runs;
  // Those of them that no other rank counts.
  std::vector<SliceRun> counted;
  at::Tensor momentum;
};

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<MatrixPart> parts;

  // To this number the iterations' products are proportional, near enough.
  int64_t cost() const { return std::min(rows, columns) * rows * columns; }
};

class Muon : public Optimizer {
 public:
  Muon(const MuonOptions& options, const std::vector<OwnedSlice>& matrices,
       std::vector<OwnedSlice> others, const dist::Group& group)
      : options_(options), group_(group), others_(make_adamw(options.adamw, std::move(others))) {
    const ParameterTable table(matrices, group);
    for (const auto& sizes : table.sizes()) matrices_.push_back({sizes[0], sizes[1], {}});
    for (const OwnedSlice& owned : matrices) {
      matrices_[table.index(owned.slice.name)].parts.push_back(
          {owned, slice_runs(owned.slice), counted_runs(owned.slice),
           at::zeros({owned.slice.elements.length}, at::kFloat)});
    }
    // Ranks that work beside each other have about as much to do.
    std::ranges::stable_sort(matrices_, std::greater<>(), &Matrix::cost);
  }

  void step(double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    others_->set_num_steps(num_steps_);
    others_->step(learning_rate, gradient_scale);
    ++num_steps_;
    const auto count = static_cast<size_t>(group_.size());
    for (size_t first = 0; first < matrices_.size(); first += count) {
      const size_t end = std::min(first + count, matrices_.size());
      step_round(std::span(matrices_).subspan(first, end - first), learning_rate, gradient_scale);
    }
  }

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> all;
    for (const Matrix& matrix : matrices_) {
      for (const MatrixPart& part : matrix.parts) {
        all.push_back({"master", part.owned.slice, part.owned.master, false});
        all.push_back({"momentum", part.owned.slice, part.momentum, false});
      }
    }
    const auto others = others_->state();
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }

 private:
  // As many matrices as there are ranks, or fewer: each is one rank's to make orthogonal.
  void step_round(std::span<const Matrix> round, double learning_rate, double gradient_scale) {
    const auto rank = static_cast<size_t>(group_.rank());
    at::Tensor own;
    for (size_t i = 0; i < round.size(); ++i) {
      const at::Tensor whole = gather_update(round[i], gradient_scale);
      if (i == rank) own = whole;
    }
    if (own.defined()) own = orthogonalize(own, options_.num_iterations).contiguous();
    for (size_t i = 0; i < round.size(); ++i) {
      at::Tensor whole = i == rank ? own : at::empty({round[i].rows, round[i].columns}, at::kFloat);
      group_.broadcast(whole, static_cast<int64_t>(i));
      apply(round[i], whole, learning_rate);
    }
  }

  // Every element comes from the one rank that counts it.
  at::Tensor gather_update(const Matrix& matrix, double gradient_scale) const {
    at::Tensor whole = at::zeros({matrix.rows, matrix.columns}, at::kFloat);
    auto* to = whole.mutable_data_ptr<float>();
    for (const MatrixPart& part : matrix.parts) {
      const at::Tensor gradient = part.owned.gradient * gradient_scale;
      part.momentum.lerp_(gradient, 1 - options_.momentum);
      const at::Tensor update =
          options_.nesterov ? gradient.lerp(part.momentum, options_.momentum) : part.momentum;
      const float* from = update.const_data_ptr<float>();
      for (const SliceRun& run : part.counted) {
        std::copy_n(from + run.offset, run.length, to + run.whole);
      }
    }
    group_.all_reduce(whole);
    return whole;
  }

  void apply(const Matrix& matrix, const at::Tensor& whole, double learning_rate) const {
    const double rate = learning_rate * size_of_update(matrix);
    const float* from = whole.const_data_ptr<float>();
    for (const MatrixPart& part : matrix.parts) {
      const at::Tensor update = at::empty_like(part.momentum);
      auto* to = update.mutable_data_ptr<float>();
      for (const SliceRun& run : part.runs) {
        std::copy_n(from + run.whole, run.length, to + run.offset);
      }
      part.owned.master.mul_(1 - learning_rate * part.owned.weight_decay).sub_(update, rate);
    }
  }

  double size_of_update(const Matrix& matrix) const {
    const auto rows = static_cast<double>(matrix.rows);
    const auto columns = static_cast<double>(matrix.columns);
    return options_.matches_adamw ? kAdamwSize * std::sqrt(std::max(rows, columns))
                                  : std::sqrt(std::max(1.0, rows / columns));
  }

  MuonOptions options_;
  dist::Group group_;
  std::unique_ptr<Optimizer> others_;
  // In the same order on all ranks.
  std::vector<Matrix> matrices_;
};

}  // namespace

at::Tensor orthogonalize(const at::Tensor& matrix, int64_t num_iterations) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = is_tall ? matrix.t() : matrix;
  x = x / x.norm().clamp_min(kLeastNorm);
  for (int64_t i = 0; i < num_iterations; ++i) {
    const at::Tensor gram = x.matmul(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kCubic, kQuintic), x, kLinear);
  }
  return is_tall ? x.t() : x;
}

std::unique_ptr<Optimizer> make_muon(const MuonOptions& options, std::vector<OwnedSlice> slices,
                                     const dist::Group& group) {
  check<ConfigError>(options.momentum >= 0 && options.momentum < 1,
                     "train.muon: momentum: expected 0 to 1 without 1, got ", options.momentum);
  check<ConfigError>(options.num_iterations > 0,
                     "train.muon: num_iterations: expected at least 1, got ",
                     options.num_iterations);
  std::vector<OwnedSlice> matrices, others;
  for (OwnedSlice& owned : slices) {
    check<ConfigError>(owned.master.is_cpu(), "train.muon: ", owned.slice.name,
                       ": expected a tensor on the CPU; choose another optimizer");
    const bool is_matrix = owned.slice.sizes.size() == 2 && options.rule(owned.slice.name);
    (is_matrix ? matrices : others).push_back(std::move(owned));
  }
  return std::make_unique<Muon>(options, matrices, std::move(others), group);
}

}  // namespace weft::train
