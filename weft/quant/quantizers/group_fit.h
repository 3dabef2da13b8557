#pragma once

#include <cstdint>

namespace weft::quant {

/// Elements of the largest quant group that is fitted.
inline constexpr int kMaxGroup = 128;

/// What the codes of a block type stand for before scale and offset.
struct CodePoints {
  /// Codes are 0 to `most`.
  int most = 0;
  /// A code stands for code - zero, unless there is a table.
  float zero = 0;
  /// `most` + 1 points, ascending; null: none.
  const float* table = nullptr;

  float least_point() const { return table == nullptr ? -zero : table[0]; }
  float most_point() const {
    return table == nullptr ? static_cast<float>(most) - zero : table[most];
  }
};

/// The elements that share a scale, with what the square of each one's error counts.
struct WeightedGroup {
  const float* values;
  const float* weights;
  int size;
};

/// A group as scale * point + offset; `error` is the weighted sum of squared errors.
struct GroupFit {
  float scale = 0;
  float offset = 0;
  float error = 0;
};

/// The nearest points of all elements; returns the weighted sum of squared errors. A scale of 0
/// takes the point nearest to 0.
float round_group(const WeightedGroup& group, const CodePoints& codes, float scale, float offset,
                  float* points);

/// The same, as codes.
void codes_of_group(const WeightedGroup& group, const CodePoints& codes, float scale, float offset,
                    uint8_t* to);

/// The code of one element alone, and the point that it stands for.
uint8_t nearest_code(const CodePoints& codes, float scale, float offset, float value);
float point_of(const CodePoints& codes, uint8_t code);

/// A scale of either sign that leaves little error, without offset: rounding and least squares take
/// turns from a number of first scales, and the best end is taken.
GroupFit fit_scale(const WeightedGroup& group, const CodePoints& codes);

/// The same with an offset, which stays at 0 or below if the type has no others.
GroupFit fit_scale_and_offset(const WeightedGroup& group, const CodePoints& codes,
                              bool is_offset_negative);

}  // namespace weft::quant
