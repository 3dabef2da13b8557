#include "weft/quant/quantizers/group_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace weft::quant {
namespace {

// Added and taken away again it rounds a number below 2^22 to the nearest whole one.
constexpr float kRounder = 12582912.0F;
constexpr int kLanes = 8;
// Rounding and least squares from one first scale.
constexpr int kFitTurns = 2;

float sum_of(const std::array<float, kMaxGroup>& terms, int size) {
  std::array<float, kLanes> lanes = {};
  for (int i = 0; i < size; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[static_cast<size_t>(lane)] += terms[static_cast<size_t>(i + lane)];
    }
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

void round_evenly(const WeightedGroup& group, const CodePoints& codes, float inverse, float offset,
                  float* points) {
  const auto most = static_cast<float>(codes.most);
  for (int i = 0; i < group.size; ++i) {
    const float place = (group.values[i] - offset) * inverse + codes.zero;
    const float clamped = std::min(std::max(place, 0.0F), most);
    points[i] = (clamped + kRounder) - kRounder - codes.zero;
  }
}

// Each threshold that an element exceeds takes it a point further.
void round_to_table(const WeightedGroup& group, const CodePoints& codes, float inverse,
                    float* points) {
  std::array<float, kMaxGroup> places;
  for (int i = 0; i < group.size; ++i) {
    places[static_cast<size_t>(i)] = group.values[i] * inverse;
    points[i] = codes.table[0];
  }
  for (int k = 0; k < codes.most; ++k) {
    const float step = codes.table[k + 1] - codes.table[k];
    const float threshold = codes.table[k] + step / 2;
    for (int i = 0; i < group.size; ++i) {
      points[i] += places[static_cast<size_t>(i)] > threshold ? step : 0.0F;
    }
  }
}

uint8_t code_at(const CodePoints& codes, float point) {
  if (codes.table == nullptr) return static_cast<uint8_t>(point + codes.zero);
  return static_cast<uint8_t>(std::find(codes.table, codes.table + codes.most, point) -
                              codes.table);
}

// What least squares need of a group and its points.
struct Sums {
  float w = 0, wx = 0, wp = 0, wpp = 0, wxp = 0;
};

Sums sums_of(const WeightedGroup& group, const float* points, bool has_offset) {
  std::array<float, kMaxGroup> wp, wpp, wxp;
  for (int i = 0; i < group.size; ++i) {
    const auto k = static_cast<size_t>(i);
    wp[k] = group.weights[i] * points[i];
    wpp[k] = wp[k] * points[i];
    wxp[k] = wp[k] * group.values[i];
  }
  Sums sums;
  sums.wpp = sum_of(wpp, group.size);
  sums.wxp = sum_of(wxp, group.size);
  if (!has_offset) return sums;
  std::array<float, kMaxGroup> w, wx;
  for (int i = 0; i < group.size; ++i) {
    const auto k = static_cast<size_t>(i);
    w[k] = group.weights[i];
    wx[k] = group.weights[i] * group.values[i];
  }
  sums.w = sum_of(w, group.size);
  sums.wx = sum_of(wx, group.size);
  sums.wp = sum_of(wp, group.size);
  return sums;
}

// Takes turns from one scale and offset, and keeps what is better than `best`.
class Descent {
 public:
  Descent(const WeightedGroup& group, const CodePoints& codes, bool has_offset, bool is_negative)
      : group_(group), codes_(codes), has_offset_(has_offset), is_negative_(is_negative) {}

  void run(float scale, float offset) {
    std::array<float, kMaxGroup> points;
    for (int turn = 0; turn <= kFitTurns; ++turn) {
      const float error = round_group(group_, codes_, scale, offset, points.data());
      if (!has_best_ || error < best_.error) {
        best_ = {scale, offset, error};
        has_best_ = true;
      } else if (turn > 0) {
        return;
      }
      if (turn == kFitTurns || !solve(points.data(), scale, offset)) return;
    }
  }

  const GroupFit& best() const { return best_; }

 private:
  bool solve(const float* points, float& scale, float& offset) const {
    const Sums sums = sums_of(group_, points, has_offset_);
    if (!(sums.wpp > 0)) return false;
    if (has_offset_) {
      const float determinant = sums.w * sums.wpp - sums.wp * sums.wp;
      if (!(determinant > 0)) return false;
      scale = (sums.w * sums.wxp - sums.wx * sums.wp) / determinant;
      offset = (sums.wpp * sums.wx - sums.wp * sums.wxp) / determinant;
      if (!is_negative_ || offset <= 0) return scale != 0;
    }
    offset = 0;
    scale = sums.wxp / sums.wpp;
    return scale != 0;
  }

  const WeightedGroup& group_;
  const CodePoints& codes_;
  bool has_offset_;
  bool is_negative_;
  bool has_best_ = false;
  GroupFit best_;
};

}  // namespace

float round_group(const WeightedGroup& group, const CodePoints& codes, float scale, float offset,
                  float* points) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  if (codes.table == nullptr) {
    round_evenly(group, codes, inverse, offset, points);
  } else {
    round_to_table(group, codes, inverse, points);
  }
  std::array<float, kMaxGroup> errors;
  for (int i = 0; i < group.size; ++i) {
    const float rest = group.values[i] - (scale * points[i] + offset);
    errors[static_cast<size_t>(i)] = group.weights[i] * rest * rest;
  }
  return sum_of(errors, group.size);
}

void codes_of_group(const WeightedGroup& group, const CodePoints& codes, float scale, float offset,
                    uint8_t* to) {
  std::array<float, kMaxGroup> points;
  round_group(group, codes, scale, offset, points.data());
  for (int i = 0; i < group.size; ++i) {
    to[i] = code_at(codes, points[static_cast<size_t>(i)]);
  }
}

uint8_t nearest_code(const CodePoints& codes, float scale, float offset, float value) {
  const WeightedGroup one = {&value, &value, 1};
  float point = 0;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  if (codes.table == nullptr) {
    round_evenly(one, codes, inverse, offset, &point);
  } else {
    round_to_table(one, codes, inverse, &point);
  }
  return code_at(codes, point);
}

float point_of(const CodePoints& codes, uint8_t code) {
  return codes.table == nullptr ? static_cast<float>(code) - codes.zero : codes.table[code];
}

GroupFit fit_scale(const WeightedGroup& group, const CodePoints& codes) {
  float extreme = 0;
  for (int i = 0; i < group.size; ++i) {
    if (std::abs(group.values[i]) > std::abs(extreme)) extreme = group.values[i];
  }
  Descent descent(group, codes, false, false);
  if (extreme == 0) return {};
  // The extreme becomes the last point of either side, or falls a bit beside it: a step of the
  // codes, as a table of 16 has them near its ends.
  const float step = codes.table == nullptr ? 1.0F : (codes.table[1] - codes.table[0]);
  for (const float end : {codes.least_point(), codes.most_point()}) {
    for (int k = -2; k <= 3; ++k) {
      const float away = 0.4F * static_cast<float>(k) * step;
      const float target = end + (end < 0 ? -away : away);
      if (target * end > 0) descent.run(extreme / target, 0);
    }
  }
  return descent.best();
}

GroupFit fit_scale_and_offset(const WeightedGroup& group, const CodePoints& codes,
                              bool is_offset_negative) {
  const auto [low, high] = std::minmax_element(group.values, group.values + group.size);
  const float least = is_offset_negative ? std::min(*low, 0.0F) : *low;
  Descent descent(group, codes, true, is_offset_negative);
  if (!(*high > least)) {
    descent.run(0, least);
    return descent.best();
  }
  const auto most = static_cast<float>(codes.most);
  // Groups of a block with one offset more get another search afterwards.
  const int stride = is_offset_negative ? 2 : 1;
  for (int k = -4; k <= 12; k += stride) {
    const float steps = most * (1 + static_cast<float>(k) / 60);
    descent.run((*high - least) / steps, least);
  }
  return descent.best();
}

}  // namespace weft::quant
