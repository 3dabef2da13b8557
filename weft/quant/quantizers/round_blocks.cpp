#include "weft/quant/quantizers/round_blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "weft/quant/quantizers/block_fit.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

// An element of a block takes this many times the work of one that is only read.
constexpr int64_t kSearchWork = 64;
// Columns that are corrected together: with their part of the factor they stay in the cache.
constexpr int64_t kTile = 512;

struct Rows {
  int64_t first, last;
};

// One block of columns at a time. Sums have one order, whatever the number of rows and threads.
class Feedback {
 public:
  Feedback(const BlockForm& form, const float* factor, const float* counts, int64_t in)
      : form_(form), factor_(factor), counts_(counts), in_(in) {}

  // `values` are the row's, from the block's first column, and are corrected within the block;
  // `errors` gets what later columns are corrected by, for each column of the block.
  FittedBlock round(int64_t column, float* values, float* errors) const {
    FittedBlock block = fit_block(form_, values, counts_ + column);
    for (int g = 0; g < form_.num_groups(); ++g) {
      const int first = g * form_.group;
      if (g > 0) {
        refit_group(form_, g, {values + first, counts_ + column + first, form_.group}, block);
      }
      for (int i = first; i < first + form_.group; ++i) {
        round_element(g, i, column, values, errors, block);
      }
    }
    return block;
  }

  // Takes the errors of a block off all columns behind it. `errors` are [out, block], `values`
  // [out, in].
  void correct_later(int64_t column, Rows rows, const float* errors, float* values) const {
    for (int64_t tile = column + form_.block; tile < in_; tile += kTile) {
      const int64_t width = std::min(kTile, in_ - tile);
      for (int64_t row = rows.first; row < rows.last; ++row) {
        float* const own = values + row * in_ + tile;
        for (int k = 0; k < form_.block; ++k) {
          const float error = errors[row * form_.block + k];
          const float* const factor = factor_ + (column + k) * in_ + tile;
          for (int64_t c = 0; c < width; ++c) own[c] -= error * factor[c];
        }
      }
    }
  }

 private:
  void round_element(int group, int i, int64_t column, float* values, float* errors,
                     FittedBlock& block) const {
    const float scale = block.group_scale(group), offset = block.group_offset(group);
    const uint8_t code = nearest_code(form_.codes, scale, offset, values[i]);
    block.codes[static_cast<size_t>(i)] = code;
    const float rounded = scale * point_of(form_.codes, code) + offset;
    const float* const row = factor_ + (column + i) * in_ + column;
    errors[i] = (values[i] - rounded) / row[i];
    for (int k = i + 1; k < form_.block; ++k) values[k] -= errors[i] * row[k];
  }

  const BlockForm& form_;
  const float* factor_;
  const float* counts_;
  int64_t in_;
};

bool is_stored(const FittedBlock& block) {
  return std::isfinite(block.scale) && std::isfinite(block.offset);
}

}  // namespace

bool fit_blocks(const BlockForm& form, const at::Tensor& values, const at::Tensor& weights,
                const TakeBlock& take) {
  const int64_t out = values.size(0), in = values.size(1), blocks = in / form.block;
  const float* const from = values.const_data_ptr<float>();
  const float* const counts = weights.const_data_ptr<float>();
  std::atomic<bool> is_finite = true;
  at::parallel_for(0, out, rows_per_thread(in * kSearchWork), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin * blocks; k < end * blocks; ++k) {
      const FittedBlock fitted = fit_block(form, from + k * form.block, counts + k * form.block);
      if (!is_stored(fitted)) is_finite = false;
      take(k / blocks, k % blocks, fitted);
    }
  });
  return is_finite;
}

bool fit_blocks_with_feedback(const BlockForm& form, const at::Tensor& values,
                              const at::Tensor& factor, const TakeBlock& take) {
  const int64_t out = values.size(0), in = values.size(1);
  const at::Tensor corrected = values.clone();
  // An error of a column costs the square of what it is divided by.
  const at::Tensor counts = factor.diagonal().square().reciprocal().contiguous();
  const Feedback feedback(form, factor.const_data_ptr<float>(), counts.const_data_ptr<float>(), in);
  at::Tensor errors = at::empty({out, form.block}, at::kFloat);
  auto* const data = corrected.mutable_data_ptr<float>();
  auto* const lost = errors.mutable_data_ptr<float>();
  std::atomic<bool> is_finite = true;
  for (int64_t block = 0; block < in / form.block; ++block) {
    const int64_t column = block * form.block;
    at::parallel_for(0, out, 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const FittedBlock fitted =
            feedback.round(column, data + row * in + column, lost + row * form.block);
        if (!is_stored(fitted)) is_finite = false;
        take(row, block, fitted);
      }
      feedback.correct_later(column, {first, last}, lost, data);
    });
  }
  return is_finite;
}

}  // namespace weft::quant
