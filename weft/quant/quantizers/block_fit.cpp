#include "weft/quant/quantizers/block_fit.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace weft::quant {
namespace {

// Searches that follow one another from the block's scale that the one before found.
constexpr int kBlockTurns = 2;

float as_half(float number) { return as_stored(c10::ScalarType::Half, number); }

int nearest(float number, int least, int most) {
  if (!(std::abs(number) < 1e6F)) return number > 0 ? most : least;
  return std::clamp(static_cast<int>(std::lround(number)), least, most);
}

// What a block's two numbers and the groups' whole numbers leave of error.
struct Trial {
  FittedBlock block;
  float error = 0;
};

GroupFit fit_freely(const BlockForm& form, const WeightedGroup& group) {
  if (!form.has_offsets) return fit_scale(group, form.codes);
  return fit_scale_and_offset(group, form.codes, form.has_two_levels());
}

// The group's whole numbers, around the quotients; returns the error.
float choose_numbers(const BlockForm& form, int index, const WeightedGroup& group,
                     const GroupFit& fit, FittedBlock& block) {
  const auto k = static_cast<size_t>(index);
  const int least = form.least_scale, most = form.most_scale;
  const int scale = block.scale == 0 ? 0 : nearest(fit.scale / block.scale, least, most);
  const int offset =
      block.offset == 0 ? 0 : nearest(fit.offset / block.offset, 0, form.most_offset);
  float error = -1;
  std::array<float, kMaxGroup> points;
  const auto attempt = [&](int s, int o) {
    if (s < least || s > most || o < 0 || o > form.most_offset) return;
    const float with = round_group(group, form.codes, block.scale * static_cast<float>(s),
                                   block.offset * static_cast<float>(o), points.data());
    if (error >= 0 && !(with < error)) return;
    error = with;
    block.scales[k] = s;
    block.offsets[k] = o;
  };
  attempt(scale, offset);
  for (const int step : {-1, 1}) attempt(scale + step, offset);
  const int chosen = block.scales[k];
  for (const int step : {-1, 1}) attempt(chosen, offset + step);
  return error;
}

class BlockSearch {
 public:
  BlockSearch(const BlockForm& form, const float* values, const float* weights)
      : form_(form), values_(values), weights_(weights) {}

  FittedBlock run() {
    if (!form_.has_two_levels()) return fit_one_level();
    for (int g = 0; g < form_.num_groups(); ++g) fits_[static_cast<size_t>(g)] = fit_group(g);
    if (form_.has_offsets) {
      search_with_offsets();
    } else {
      search_scales();
    }
    FittedBlock block = best_.block;
    for (int g = 0; g < form_.num_groups(); ++g) set_codes(g, block);
    return block;
  }

 private:
  WeightedGroup group(int index) const {
    return {values_ + index * form_.group, weights_ + index * form_.group, form_.group};
  }

  GroupFit fit_group(int index) const { return fit_freely(form_, group(index)); }

  void set_codes(int g, FittedBlock& block) const {
    codes_of_group(group(g), form_.codes, block.group_scale(g), block.group_offset(g),
                   block.codes.data() + g * form_.group);
  }

  FittedBlock fit_one_level() const {
    FittedBlock block;
    block.scales[0] = block.offsets[0] = 1;
    const GroupFit fit = fit_group(0);
    block.scale = as_stored(form_.number_type, fit.scale);
    block.offset = as_stored(form_.number_type, fit.offset);
    if (form_.has_zero_points) fit_zero_point(fit, block);
    set_codes(0, block);
    return block;
  }

  // The whole numbers around the best offset, each with a scale of its own.
  void fit_zero_point(const GroupFit& free, FittedBlock& block) const {
    const float middle = free.scale == 0 ? 0 : -free.offset / free.scale;
    float least = -1;
    for (const int step : {-1, 0, 1}) {
      CodePoints codes = form_.codes;
      codes.zero = static_cast<float>(nearest(middle + static_cast<float>(step), 0, codes.most));
      const GroupFit fit = fit_scale(group(0), codes);
      if (least >= 0 && !(fit.error < least)) continue;
      least = fit.error;
      block.scale = as_stored(form_.number_type, fit.scale);
      block.offset = -block.scale * codes.zero;
    }
  }

  void search_scales() {
    float extreme = 0;
    for (int g = 0; g < form_.num_groups(); ++g) {
      const float scale = fits_[static_cast<size_t>(g)].scale;
      if (std::abs(scale) > std::abs(extreme)) extreme = scale;
    }
    const int step = -form_.least_scale / 32;
    for (int k = 0; k < 4; ++k) {
      descend(extreme / static_cast<float>(form_.least_scale + k * step), 0);
    }
  }

  void search_with_offsets() {
    float scale = 0, offset = 0;
    for (int g = 0; g < form_.num_groups(); ++g) {
      scale = std::max(scale, fits_[static_cast<size_t>(g)].scale);
      offset = std::min(offset, fits_[static_cast<size_t>(g)].offset);
    }
    const auto most_scale = static_cast<float>(form_.most_scale);
    const auto most_offset = static_cast<float>(form_.most_offset);
    for (const float share : {1.0F, 0.93F, 0.86F}) {
      descend(scale / (most_scale * share), offset / most_offset);
    }
  }

  void descend(float scale, float offset) {
    float error = 0;
    for (int turn = 0; turn <= kBlockTurns; ++turn) {
      const Trial trial = with_numbers(as_half(scale), as_half(offset));
      if (!has_best_ || trial.error < best_.error) {
        best_ = trial;
        has_best_ = true;
      }
      if ((turn > 0 && !(trial.error < error)) || turn == kBlockTurns) return;
      error = trial.error;
      if (!solve(trial.block, scale, offset)) return;
    }
  }

  Trial with_numbers(float scale, float offset) const {
    Trial trial;
    trial.block.scale = scale;
    trial.block.offset = offset;
    for (int g = 0; g < form_.num_groups(); ++g) {
      trial.error += choose_numbers(form_, g, group(g), fits_[static_cast<size_t>(g)], trial.block);
    }
    return trial;
  }

  // Least squares on the block's numbers, whole numbers and codes as they are.
  bool solve(const FittedBlock& block, float& scale, float& offset) const {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    std::array<float, kMaxGroup> points;
    for (int g = 0; g < form_.num_groups(); ++g) {
      const WeightedGroup part = group(g);
      round_group(part, form_.codes, block.group_scale(g), block.group_offset(g), points.data());
      const double b = block.offsets[static_cast<size_t>(g)];
      double pp = 0, p = 0, w = 0, px = 0, x = 0;
      for (int i = 0; i < part.size; ++i) {
        const double weight = part.weights[i], point = points[static_cast<size_t>(i)];
        pp += weight * point * point;
        p += weight * point;
        w += weight;
        px += weight * point * part.values[i];
        x += weight * part.values[i];
      }
      const double s = block.scales[static_cast<size_t>(g)];
      aa += s * s * pp;
      ab += s * b * p;
      bb += b * b * w;
      ax += s * px;
      bx += b * x;
    }
    if (!(aa > 0)) return false;
    const double determinant = aa * bb - ab * ab;
    if (bb > 0 && determinant > 1e-12 * aa * bb) {
      scale = static_cast<float>((ax * bb - bx * ab) / determinant);
      offset = static_cast<float>((bx * aa - ax * ab) / determinant);
      return offset < 0 && scale > 0;
    }
    scale = static_cast<float>(ax / aa);
    return scale != 0;
  }

  const BlockForm& form_;
  const float* values_;
  const float* weights_;
  std::array<GroupFit, 16> fits_ = {};
  Trial best_;
  bool has_best_ = false;
};

// As ggml has it: the largest becomes 127 or -127.
FittedBlock round_to_bytes(const float* values) {
  FittedBlock block;
  block.scales[0] = 1;
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::abs(values[i]));
  const float scale = most / 127;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  block.scale = as_half(scale);
  for (int i = 0; i < 32; ++i) {
    block.codes[static_cast<size_t>(i)] =
        static_cast<uint8_t>(std::lround(values[i] * inverse) + 128);
  }
  return block;
}

}  // namespace

FittedBlock fit_block(const BlockForm& form, const float* values, const float* weights) {
  if (form.dtype == core::Dtype::kQ8_0) return round_to_bytes(values);
  return BlockSearch(form, values, weights).run();
}

void refit_group(const BlockForm& form, int index, const WeightedGroup& group, FittedBlock& block) {
  choose_numbers(form, index, group, fit_freely(form, group), block);
}

}  // namespace weft::quant
