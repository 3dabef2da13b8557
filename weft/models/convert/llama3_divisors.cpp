#include "weft/models/convert/llama3_divisors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "weft/nn/attention/rope_frequencies.h"

namespace weft::models {
namespace {

using nn::RopeScaling;
using nn::RopeType;

constexpr double kTolerance = 1e-5;
// What Llama 3.1 has, where the divisors leave it open.
constexpr double kUsualHigh = 4;
// Powers of two that original positions may be, where no divisor tells.
constexpr int kLeastPower = 1;
constexpr int kMostPower = 24;

// A divisor on the ramp: rotations per position of its pair, and how much of the plain frequency
// it keeps (0: divided by the whole factor, 1: as it is).
struct RampPoint {
  double rotations;
  double kept;
};

std::vector<double> doubles_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  const auto* first = values.const_data_ptr<double>();
  return {first, first + values.numel()};
}

// Strictly between both ends of the ramp.
std::vector<RampPoint> ramp_points(const std::vector<double>& divisors, double factor, int64_t dim,
                                   double base) {
  const auto plain = doubles_of(nn::rope_frequencies(dim, base, {}, 1).values);
  std::vector<RampPoint> points;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double kept = (1 / divisors[i] - 1 / factor) / (1 - 1 / factor);
    if (kept > kTolerance && kept < 1 - kTolerance) {
      points.push_back({plain[i] / (2 * std::numbers::pi), kept});
    }
  }
  return points;
}

RopeScaling scaling_of(double factor, double low, double high, double original) {
  RopeScaling scaling;
  scaling.type = RopeType::kLlama3;
  scaling.factor = factor;
  scaling.low_freq_factor = low;
  scaling.high_freq_factor = high;
  scaling.original_positions = std::llround(original);
  return scaling;
}

// Numbers that people have chosen are short; divisors are float32.
double shortened(double value) { return std::round(value * 1e4) / 1e4; }

// kept = (original * rotations - low) / (high - low) on the ramp.
std::vector<RopeScaling> candidates(const std::vector<RampPoint>& points, double factor) {
  std::vector<RopeScaling> list;
  if (points.empty()) {
    for (int power = kLeastPower; power <= kMostPower; ++power) {
      list.push_back(scaling_of(factor, 1, kUsualHigh, std::exp2(power)));
    }
    return list;
  }
  const RampPoint& first = points.front();
  const RampPoint& last = points.back();
  for (const double low : {1.0, 2.0, 4.0, 8.0}) {
    double high = low * kUsualHigh;
    if (points.size() > 1) {
      const double slope = (first.kept - last.kept) / (first.rotations - last.rotations);
      high = shortened(low + low / (slope * first.rotations - first.kept));
    }
    const double original = ((high - low) * first.kept + low) / first.rotations;
    if (high > low && original >= 1 && original < std::exp2(kMostPower)) {
      list.push_back(scaling_of(factor, low, high, original));
    }
  }
  return list;
}

bool fits(const RopeScaling& scaling, const std::vector<double>& divisors, int64_t dim,
          double base) {
  const auto own = doubles_of(llama3_divisors(dim, base, scaling));
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (std::abs(own[i] / divisors[i] - 1) > kTolerance) return false;
  }
  return true;
}

}  // namespace

at::Tensor llama3_divisors(int64_t dim, double base, const RopeScaling& scaling) {
  const at::Tensor plain = nn::rope_frequencies(dim, base, {}, 1).values;
  const at::Tensor scaled = nn::rope_frequencies(dim, base, scaling, 1).values;
  return (plain.to(at::kDouble) / scaled.to(at::kDouble)).to(at::kFloat);
}

std::optional<RopeScaling> llama3_from_divisors(const at::Tensor& divisors, int64_t dim,
                                                double base) {
  const std::vector<double> given = doubles_of(divisors);
  double factor = 1;
  for (const double divisor : given) {
    if (!std::isfinite(divisor) || divisor < 1 - kTolerance) return std::nullopt;
    factor = std::max(factor, divisor);
  }
  factor = shortened(factor);
  if (factor <= 1) return RopeScaling{};
  for (const RopeScaling& scaling : candidates(ramp_points(given, factor, dim, base), factor)) {
    if (fits(scaling, given, dim, base)) return scaling;
  }
  return std::nullopt;
}

}  // namespace weft::models
