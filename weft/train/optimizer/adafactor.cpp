#include "weft/train/optimizer/adafactor.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "weft/core/error.h"
#include "weft/train/optimizer/parameter_table.h"
#include "weft/train/optimizer/update.h"
#include "weft/train/slice_runs.h"

namespace weft::train {

using core::check;
using core::ConfigError;

namespace {

// A parameter as Adafactor sees it: matrices [rows, columns], several where there are more dims.
struct Matrices {
  int64_t rows = 1;
  int64_t columns = 0;
  int64_t num_rows = 0;     // of all matrices
  int64_t num_columns = 0;  // of all matrices
  bool is_factored = false;

  Matrices() = default;
  explicit Matrices(const std::vector<int64_t>& sizes) {
    const int64_t all = count_elements(sizes, "train.adafactor");
    columns = sizes.empty() ? 1 : sizes.back();
    is_factored = sizes.size() >= 2;
    if (!is_factored || all == 0) return;
    rows = sizes[sizes.size() - 2];
    num_rows = all / columns;
    num_columns = all / rows;
  }
  // Of the row that an element of the whole lies in: where its matrix's columns begin.
  int64_t first_column(int64_t row) const { return row / rows * columns; }
};

// What this rank has of a parameter.
struct Part {
  OwnedSlice owned;
  size_t parameter = 0;  // in the table
  Matrices form;
  std::vector<SliceRun> runs;
  // Those runs that no other rank counts.
  std::vector<SliceRun> counted;
  // Where the parameter's sums begin: rows, columns, then that of the master's squares.
  int64_t sums = 0;
  at::Tensor row, column;  // factored
  at::Tensor exp_avg_sq;   // not factored
  at::Tensor momentum;     // with beta1
  // For the step: 1/sqrt(row / mean of the rows), and 1/sqrt(column) or of each element's moment.
  std::vector<float> row_factor, column_factor;
};

// Calls `visit(row, column, offset, length)` for the parts of rows that the runs are made of.
template <class Visit>
void for_each_row(const std::vector<SliceRun>& runs, int64_t columns, Visit&& visit) {
  for (const SliceRun& run : runs) {
    for (int64_t done = 0; done < run.length;) {
      const int64_t column = (run.whole + done) % columns;
      const int64_t length = std::min(columns - column, run.length - done);
      visit((run.whole + done) / columns, column, run.offset + done, length);
      done += length;
    }
  }
}

class Adafactor : public Optimizer {
 public:
  Adafactor(const AdafactorOptions& options, std::vector<OwnedSlice> slices,
            const dist::Group& group)
      : options_(options), group_(group) {
    const ParameterTable table(slices, group);
    std::vector<int64_t> starts;
    for (const auto& sizes : table.sizes()) {
      const Matrices form(sizes);
      starts.push_back(num_sums_);
      numels_.push_back(count_elements(sizes, "train.adafactor"));
      num_sums_ += form.num_rows + form.num_columns + 1;
    }
    for (OwnedSlice& owned : slices) {
      const size_t index = table.index(owned.slice.name);
      add_part(std::move(owned), index, starts[index]);
    }
  }

  void step(double learning_rate, double gradient_scale) override {
    ++num_steps_;
    beta2_ = 1 - std::pow(static_cast<double>(num_steps_), -options_.decay_power);
    scale_ = static_cast<float>(gradient_scale);
    const auto num_parameters = static_cast<int64_t>(numels_.size());
    at::Tensor sums = at::zeros({num_sums_}, at::kDouble);
    auto* to = sums.mutable_data_ptr<double>();
    for_each_part([&](Part& part) { add_sums(part, to + part.sums); });
    group_.all_reduce(sums);
    at::Tensor squares = at::zeros({num_parameters}, at::kDouble);
    auto* updates = squares.mutable_data_ptr<double>();
    for_each_part([&](Part& part) {
      remember(part, to + part.sums);
      updates[part.parameter] = sum_of_squared_updates(part);
    });
    group_.all_reduce(squares);
    for_each_part([&](Part& part) {
      const auto numel = static_cast<double>(numels_[part.parameter]);
      const double root = std::sqrt(updates[part.parameter] / numel);
      const double scale =
          options_.scale_parameter
              ? std::max(options_.epsilon_scale, std::sqrt(to[last_sum(part)] / numel))
              : 1.0;
      const double rate = learning_rate * scale;
      apply(part, rate, rate / std::max(1.0, root / options_.clip_threshold));
    });
  }

  std::vector<StateTensor> state() override {
    std::vector<StateTensor> all;
    for (const Part& part : parts_) {
      const Slice& slice = part.owned.slice;
      all.push_back({"master", slice, part.owned.master, false});
      if (part.form.is_factored) {
        all.push_back({"row", slice, part.row, true});
        all.push_back({"column", slice, part.column, true});
      } else {
        all.push_back({"exp_avg_sq", slice, part.exp_avg_sq, false});
      }
      if (options_.beta1) all.push_back({"exp_avg", slice, part.momentum, false});
    }
    return all;
  }

 private:
  void add_part(OwnedSlice owned, size_t parameter, int64_t sums) {
    const int64_t length = owned.slice.elements.length;
    Part part;
    part.owned = std::move(owned);
    part.parameter = parameter;
    part.sums = sums;
    part.form = Matrices(part.owned.slice.sizes);
    part.runs = slice_runs(part.owned.slice);
    part.counted = counted_runs(part.owned.slice);
    if (part.form.is_factored) {
      part.row = at::zeros({part.form.num_rows}, at::kFloat);
      part.column = at::zeros({part.form.num_columns}, at::kFloat);
    } else {
      part.exp_avg_sq = at::zeros({length}, at::kFloat);
    }
    if (options_.beta1) part.momentum = at::zeros({length}, at::kFloat);
    parts_.push_back(std::move(part));
  }

  static int64_t last_sum(const Part& part) {
    return part.sums + part.form.num_rows + part.form.num_columns;
  }

  template <class Visit>
  void for_each_part(Visit&& visit) {
    at::parallel_for(0, static_cast<int64_t>(parts_.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) visit(parts_[static_cast<size_t>(i)]);
    });
  }

  // Of the elements that this rank counts: squares of gradients by rows and columns, and those of
  // the master.
  void add_sums(const Part& part, double* sums) const {
    const float* gradient = part.owned.gradient.const_data_ptr<float>();
    const float* master = part.owned.master.const_data_ptr<float>();
    const Matrices& form = part.form;
    double* columns = sums + form.num_rows;
    for_each_row(part.counted, form.columns,
                 [&](int64_t row, int64_t column, int64_t offset, int64_t length) {
                   columns[form.num_columns] += sum_of_squares(master + offset, length);
                   if (!form.is_factored) return;
                   const double scale = static_cast<double>(scale_) * scale_;
                   sums[row] += sum_of_squares(gradient + offset, length) * scale +
                                options_.epsilon_square * static_cast<double>(length);
                   add_squares(gradient + offset, scale_, options_.epsilon_square,
                               columns + form.first_column(row) + column, length);
                 });
  }

  // Blends the step's means into the moments.
  void remember(Part& part, const double* sums) const {
    const Matrices& form = part.form;
    if (!form.is_factored) {
      auto* moment = part.exp_avg_sq.mutable_data_ptr<float>();
      part.column_factor.resize(static_cast<size_t>(part.exp_avg_sq.numel()));
      const float* gradient = part.owned.gradient.const_data_ptr<float>();
      for (int64_t i = 0; i < part.exp_avg_sq.numel(); ++i) {
        const double g = static_cast<double>(gradient[i]) * scale_;
        moment[i] = blend(moment[i], g * g + options_.epsilon_square);
        part.column_factor[static_cast<size_t>(i)] = 1 / std::sqrt(moment[i]);
      }
      return;
    }
    auto* row = part.row.mutable_data_ptr<float>();
    auto* column = part.column.mutable_data_ptr<float>();
    for (int64_t i = 0; i < form.num_rows; ++i) {
      row[i] = blend(row[i], sums[i] / static_cast<double>(form.columns));
    }
    for (int64_t i = 0; i < form.num_columns; ++i) {
      column[i] = blend(column[i], sums[form.num_rows + i] / static_cast<double>(form.rows));
    }
    make_factors(part);
  }

  float blend(float old, double now) const {
    return static_cast<float>(old * beta2_ + now * (1 - beta2_));
  }

  static void make_factors(Part& part) {
    const Matrices& form = part.form;
    const float* row = part.row.const_data_ptr<float>();
    const float* column = part.column.const_data_ptr<float>();
    part.row_factor.resize(static_cast<size_t>(form.num_rows));
    part.column_factor.resize(static_cast<size_t>(form.num_columns));
    for (int64_t first = 0; first < form.num_rows; first += form.rows) {
      double mean = 0;
      for (int64_t i = 0; i < form.rows; ++i) mean += row[first + i];
      mean /= static_cast<double>(form.rows);
      for (int64_t i = first; i < first + form.rows; ++i) {
        part.row_factor[static_cast<size_t>(i)] = static_cast<float>(1 / std::sqrt(row[i] / mean));
      }
    }
    for (int64_t i = 0; i < form.num_columns; ++i) {
      part.column_factor[static_cast<size_t>(i)] =
          static_cast<float>(1 / std::sqrt(static_cast<double>(column[i])));
    }
  }

  // Calls `visit(row factor, column factors, offset, length)` for the parts of the runs' rows.
  template <class Visit>
  void for_each_factored(const Part& part, const std::vector<SliceRun>& runs, Visit&& visit) const {
    const float* factors = part.column_factor.data();
    if (!part.form.is_factored) {
      for (const SliceRun& run : runs) visit(scale_, factors + run.offset, run.offset, run.length);
      return;
    }
    for_each_row(runs, part.form.columns,
                 [&](int64_t row, int64_t column, int64_t offset, int64_t length) {
                   visit(part.row_factor[static_cast<size_t>(row)] * scale_,
                         factors + part.form.first_column(row) + column, offset, length);
                 });
  }

  double sum_of_squared_updates(const Part& part) const {
    const float* gradient = part.owned.gradient.const_data_ptr<float>();
    double sum = 0;
    for_each_factored(part, part.counted,
                      [&](float row, const float* columns, int64_t offset, int64_t length) {
                        sum += sum_of_update_squares(gradient + offset, row, columns, length);
                      });
    return sum;
  }

  void apply(const Part& part, double rate, double update_rate) const {
    auto* master = part.owned.master.mutable_data_ptr<float>();
    const float* gradient = part.owned.gradient.const_data_ptr<float>();
    auto* momentum = options_.beta1 ? part.momentum.mutable_data_ptr<float>() : nullptr;
    UpdateNumbers numbers;
    numbers.beta1 = static_cast<float>(options_.beta1.value_or(0));
    numbers.rest1 = static_cast<float>(1 - options_.beta1.value_or(0));
    numbers.keep = static_cast<float>(1 - rate * part.owned.weight_decay);
    numbers.learning_rate = static_cast<float>(update_rate);
    for_each_factored(
        part, part.runs, [&](float row, const float* columns, int64_t offset, int64_t length) {
          UpdateSpan span{master + offset, gradient + offset, nullptr, nullptr, length};
          if (momentum == nullptr) {
            apply_factored(span, row, columns, numbers.keep, numbers.learning_rate);
          } else {
            span.first = momentum + offset;
            apply_factored_with_momentum(span, row, columns, numbers);
          }
        });
  }

  AdafactorOptions options_;
  dist::Group group_;
  std::vector<Part> parts_;
  // Of the table's parameters.
  std::vector<int64_t> numels_;
  int64_t num_sums_ = 0;
  // The step's.
  double beta2_ = 0;
  float scale_ = 1;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const AdafactorOptions& options,
                                          std::vector<OwnedSlice> slices,
                                          const dist::Group& group) {
  check<ConfigError>(!options.beta1 || (*options.beta1 >= 0 && *options.beta1 < 1),
                     "train.adafactor: beta1: expected 0 to 1 without 1, got ",
                     options.beta1.value_or(0));
  check<ConfigError>(
      options.clip_threshold > 0 && options.decay_power > 0 && options.epsilon_square > 0,
      "train.adafactor: expected a clip threshold, decay power and epsilon above 0, got ",
      options.clip_threshold, ", ", options.decay_power, ", ", options.epsilon_square);
  for (const OwnedSlice& owned : slices) {
    check<ConfigError>(owned.master.is_cpu(), "train.adafactor: ", owned.slice.name,
                       ": expected a tensor on the CPU; choose another optimizer");
  }
  return std::make_unique<Adafactor>(options, std::move(slices), group);
}

}  // namespace weft::train
