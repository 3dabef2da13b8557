#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "weft/dist/group.h"
#include "weft/shard/split.h"

namespace weft::nn {

/// Which fan keeps its variance in Kaiming's rule.
enum class FanMode { kFanIn, kFanOut };
/// What follows the layer, as far as Kaiming's rule knows it; the slope is that of kLeakyRelu.
enum class Nonlinearity { kLinear, kConv, kSigmoid, kTanh, kRelu, kLeakyRelu, kSelu };

/// How a *whole* weight begins. A cheap value; make_shard computes what a rank holds of it. Fans
/// are the whole's, as torch::nn::init counts them: of [out, in, rest…], in * rest and out * rest.
class Init {
 public:
  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  static Init constant(double value);
  static Init normal(double mean = 0, double std = 1);
  /// From `low` to `high`; ConfigError unless low <= high.
  static Init uniform(double low = 0, double high = 1);
  /// Source: Glorot and Bengio 2010.
  static Init xavier_uniform(double gain = 1);
  static Init xavier_normal(double gain = 1);
  /// `slope` is the leaky relu's. Source: He et al. 2015, arXiv:1502.01852.
  static Init kaiming_uniform(double slope = 0, FanMode mode = FanMode::kFanIn,
                              Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu);
  static Init kaiming_normal(double slope = 0, FanMode mode = FanMode::kFanIn,
                             Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu);
  /// A normal distribution of which only low…high is kept (absolute values, as in torch);
  /// ConfigError unless low < high and std > 0.
  static Init trunc_normal(double mean = 0, double std = 1, double low = -2, double high = 2);
  /// Orthonormal rows (or columns, where there are fewer) times `gain`; for each rank the whole
  /// exists for the moment, in float32. Source: Saxe et al. 2013, arXiv:1312.6120.
  static Init orthogonal(double gain = 1);
  /// Ones on the diagonal of a matrix.
  static Init eye();
  /// What torch::nn::Linear begins with: kaiming_uniform(sqrt(5)), i.e. within 1/sqrt(fan in).
  static Init linear_default();
  /// torch::nn::Linear's bias: uniform within 1/sqrt(in_features).
  static Init linear_default_bias(int64_t in_features);
  /// `fill` overwrites the whole, float32 on the CPU, and must do the same on every rank: use
  /// `seed`, which is the same on all of them. For each rank the whole exists for the moment.
  static Init custom(std::function<void(at::Tensor& whole, uint64_t seed)> fill);

  /// The distribution of one element, once the whole's sizes are known.
  struct Element {
    enum class Kind { kConstant, kUniform, kNormal, kTruncNormal, kEye };
    Kind kind = Kind::kConstant;
    double a = 0;  // the value, the mean, or the low end
    double b = 0;  // the standard deviation, or the high end
    double low = 0;
    double high = 0;
  };
  /// Throws ShapeError if the sizes have no meaning for this rule.
  Element element(at::IntArrayRef sizes) const { return rule_(sizes); }
  /// What fills the whole, of rules whose elements depend on each other; else empty.
  const std::function<void(at::Tensor&, uint64_t)>& fill() const { return fill_; }

 private:
  explicit Init(std::function<Element(at::IntArrayRef)> rule) : rule_(std::move(rule)) {}

  std::function<Element(at::IntArrayRef)> rule_;
  std::function<void(at::Tensor&, uint64_t)> fill_;
};

/// One rank's part of a whole.
struct ShardSpec {
  /// The whole's.
  std::vector<int64_t> sizes;
  /// The shard is these ranges along `dim`, one after the other; empty: the whole.
  int64_t dim = 0;
  std::vector<shard::Range> ranges = {};
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// This rank's shard of the whole that `init`, `seed` and `stream` determine: the same whole for
/// any number of ranks, dim and ranges, bit for bit. Each element is computed from its index in the
/// whole, in float64, rounded to float32 (the master) and once more to a half type. `stream`
/// separates the parameters of a layer, which share a seed. On the meta device nothing is computed.
/// Not collective. Throws ShapeError for ranges outside of the whole or a shape that `init` has no
/// meaning for (fans need 2 dims), ConfigError for a dtype that is not floating.
at::Tensor make_shard(const Init& init, const ShardSpec& spec, uint64_t seed, uint64_t stream = 0);

/// One number of torch's default CPU generator, so that torch::manual_seed decides it: every rank
/// draws one and gets that of the group's rank 0. Ranks with other seeds agree all the same, and a
/// program draws the same numbers on any number of ranks. Collective.
uint64_t agreed_seed(const dist::Group& group);

}  // namespace weft::nn
