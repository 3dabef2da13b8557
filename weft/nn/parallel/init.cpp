#include "weft/nn/parallel/init.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/diagonal.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/linalg_qr.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/core/error.h"
#include "weft/nn/random/philox.h"
#include "weft/quant/one_thread.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;
using Element = Init::Element;
using Kind = Init::Element::Kind;

struct Fans {
  double in;
  double out;
};

Fans fans_of(at::IntArrayRef sizes) {
  check<ShapeError>(sizes.size() >= 2, "nn.Init: fan in and out of a weight ",
                    core::list_text(sizes),
                    ", expected 2 dims or more; use uniform or normal for a vector");
  double rest = 1;
  for (const int64_t size : sizes.slice(2)) rest *= static_cast<double>(size);
  return {static_cast<double>(sizes[1]) * rest, static_cast<double>(sizes[0]) * rest};
}

// The gains of torch::nn::init::calculate_gain.
double gain_of(Nonlinearity nonlinearity, double slope) {
  switch (nonlinearity) {
    case Nonlinearity::kTanh:
      return 5.0 / 3.0;
    case Nonlinearity::kRelu:
      return std::numbers::sqrt2;
    case Nonlinearity::kLeakyRelu:
      return std::sqrt(2.0 / (1 + slope * slope));
    case Nonlinearity::kSelu:
      return 0.75;
    case Nonlinearity::kLinear:
    case Nonlinearity::kConv:
    case Nonlinearity::kSigmoid:
      break;
  }
  return 1;
}

// A uniform distribution of mean 0.
Element uniform_of_std(double std) {
  const double bound = std::numbers::sqrt3 * std;
  return {Kind::kUniform, -bound, bound};
}

double kaiming_std(at::IntArrayRef sizes, double slope, FanMode mode, Nonlinearity nonlinearity) {
  const Fans fans = fans_of(sizes);
  return gain_of(nonlinearity, slope) / std::sqrt(mode == FanMode::kFanIn ? fans.in : fans.out);
}

double xavier_std(at::IntArrayRef sizes, double gain) {
  const Fans fans = fans_of(sizes);
  return gain * std::sqrt(2.0 / (fans.in + fans.out));
}

double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// Where the elements of a shard lie in the whole: contiguous runs, one per range and index of the
// dims before `dim`.
class ShardRuns {
 public:
  explicit ShardRuns(const ShardSpec& spec) {
    const auto dim = static_cast<size_t>(spec.dim);
    for (size_t d = dim + 1; d < spec.sizes.size(); ++d) inner_ *= spec.sizes[d];
    for (const shard::Range& range : spec.ranges) {
      ranges_.push_back({range.start * inner_, range.length * inner_});
      slab_ += range.length * inner_;
    }
    whole_slab_ = spec.sizes[dim] * inner_;
  }

  /// Calls use(position, index in the whole, length) for the runs of the shard's flat elements
  /// begin…end.
  template <class Use>
  void visit(int64_t begin, int64_t end, Use&& use) const {
    while (begin < end) {
      const int64_t slab = begin / slab_;
      int64_t in_slab = begin % slab_;
      const shard::Range* range = ranges_.data();
      for (; in_slab >= range->length; ++range) in_slab -= range->length;
      const int64_t length = std::min(range->length - in_slab, end - begin);
      use(begin, slab * whole_slab_ + range->start + in_slab, length);
      begin += length;
    }
  }

 private:
  int64_t inner_ = 1;
  int64_t slab_ = 0;
  int64_t whole_slab_ = 0;
  std::vector<shard::Range> ranges_;
};

// Numbers of one parameter by their index in the whole.
class ElementStream {
 public:
  ElementStream(const Element& element, at::IntArrayRef sizes, uint64_t seed, uint64_t stream)
      : element_(element), seed_(seed), stream_(stream) {
    if (element.kind == Kind::kEye) columns_ = sizes[1];
    if (element.kind != Kind::kTruncNormal) return;
    // erfinv turns a uniform number of (-1, 1) into a normal one.
    low_ = 2 * normal_cdf((element.low - element.a) / element.b) - 1;
    high_ = 2 * normal_cdf((element.high - element.a) / element.b) - 1;
  }

  void fill(double* out, int64_t index, int64_t length) const {
    for (int64_t i = 0; i < length; ++i) out[i] = at(index + i);
  }

  /// What is quicker for many at once.
  void finish(at::Tensor& values) const {
    if (element_.kind != Kind::kTruncNormal) return;
    values.erfinv_().mul_(element_.b * std::numbers::sqrt2).add_(element_.a);
    values.clamp_(element_.low, element_.high);
  }

 private:
  double at(int64_t index) const {
    if (element_.kind == Kind::kConstant) return element_.a;
    if (element_.kind == Kind::kEye) return index / columns_ == index % columns_ ? 1 : 0;
    const auto pair = uniform_pair(seed_, stream_, static_cast<uint64_t>(index) / 2);
    const bool second = index % 2 == 1;
    if (element_.kind == Kind::kNormal) {
      // Box and Muller 1958: a pair of uniform numbers gives a pair of normal ones.
      const double radius = std::sqrt(-2 * std::log(1 - pair[0]));
      const double angle = 2 * std::numbers::pi * pair[1];
      return element_.a + element_.b * radius * (second ? std::sin(angle) : std::cos(angle));
    }
    const double u = pair[second ? 1 : 0];
    if (element_.kind == Kind::kTruncNormal) return low_ + (high_ - low_) * u;
    return element_.a + (element_.b - element_.a) * u;
  }

  Element element_;
  uint64_t seed_;
  uint64_t stream_;
  int64_t columns_ = 1;
  double low_ = 0;
  double high_ = 0;
};

// Half types are rounded from the float32 master, not from float64.
at::Tensor rounded(const at::Tensor& values, at::ScalarType dtype) {
  return dtype == at::kDouble ? values : values.to(at::kFloat);
}

void fill_elements(at::Tensor& shard, const ElementStream& stream, const ShardRuns& runs) {
  // The float64 numbers exist for a block at a time.
  constexpr int64_t kBlock = 1 << 18, kGrain = 1 << 12;
  at::Tensor flat = shard.view(-1);
  for (int64_t begin = 0; begin < flat.numel(); begin += kBlock) {
    const int64_t length = std::min(kBlock, flat.numel() - begin);
    at::Tensor values = at::empty({length}, at::kDouble);
    auto* out = values.mutable_data_ptr<double>();
    at::parallel_for(0, length, kGrain, [&](int64_t first, int64_t last) {
      runs.visit(begin + first, begin + last, [&](int64_t position, int64_t index, int64_t count) {
        stream.fill(out + (position - begin), index, count);
      });
    });
    stream.finish(values);
    flat.narrow(0, begin, length).copy_(rounded(values, shard.scalar_type()));
  }
}

void cut_whole(at::Tensor& shard, const Init& init, const ShardSpec& spec, uint64_t seed) {
  at::Tensor whole = at::empty(spec.sizes, at::kFloat);
  init.fill()(whole, seed);
  check<ShapeError>(whole.sizes() == at::IntArrayRef(spec.sizes),
                    "nn.Init.custom: the function left a whole of ", core::list_text(whole.sizes()),
                    ", expected ", core::list_text(spec.sizes), "; fill it in place");
  int64_t start = 0;
  for (const shard::Range& range : spec.ranges) {
    shard.narrow(spec.dim, start, range.length)
        .copy_(whole.narrow(spec.dim, range.start, range.length));
    start += range.length;
  }
}

// Returns `spec` with its dim counted from the front and its ranges filled in.
ShardSpec checked_spec(ShardSpec spec) {
  constexpr const char* kWhere = "nn.make_shard";
  const auto dims = static_cast<int64_t>(spec.sizes.size());
  check<ConfigError>(c10::isFloatingType(spec.dtype), kWhere, ": dtype ", c10::toString(spec.dtype),
                     ", expected a floating one");
  check<ShapeError>(dims >= 1 && spec.dim >= -dims && spec.dim < dims, kWhere, ": dim ", spec.dim,
                    " of a whole with ", dims, " dims");
  if (spec.dim < 0) spec.dim += dims;
  const int64_t size = spec.sizes[static_cast<size_t>(spec.dim)];
  if (spec.ranges.empty()) spec.ranges = {{0, size}};
  for (const shard::Range& range : spec.ranges) {
    check<ShapeError>(range.start >= 0 && range.length >= 0 && range.start <= size - range.length,
                      kWhere, ": range of ", range.length, " from ", range.start, " in dim ",
                      spec.dim, " of a whole ", core::list_text(spec.sizes));
  }
  return spec;
}

void fill_orthogonal(at::Tensor& whole, double gain, uint64_t seed) {
  const int64_t rows = whole.size(0), columns = whole.numel() / std::max<int64_t>(1, rows);
  const quant::OneThread one_thread;
  at::Tensor normal = make_shard(Init::normal(), {{rows, columns}}, seed);
  if (rows < columns) normal = normal.t();
  auto [q, r] = at::linalg_qr(normal);
  // Makes the decomposition the unique one, and q evenly distributed.
  q = q * at::diagonal(r).sign();
  if (rows < columns) q = q.t();
  whole.view({rows, columns}).copy_(q * gain);
}

}  // namespace

Init Init::constant(double value) {
  return Init([=](at::IntArrayRef) { return Element{Kind::kConstant, value}; });
}

Init Init::normal(double mean, double std) {
  check<ConfigError>(std >= 0, "nn.Init.normal: std ", std, ", expected 0 or more");
  return Init([=](at::IntArrayRef) { return Element{Kind::kNormal, mean, std}; });
}

Init Init::uniform(double low, double high) {
  check<ConfigError>(low <= high, "nn.Init.uniform: from ", low, " to ", high,
                     ", expected low <= high");
  return Init([=](at::IntArrayRef) { return Element{Kind::kUniform, low, high}; });
}

Init Init::xavier_uniform(double gain) {
  return Init([=](at::IntArrayRef sizes) { return uniform_of_std(xavier_std(sizes, gain)); });
}

Init Init::xavier_normal(double gain) {
  return Init([=](at::IntArrayRef sizes) {
    return Element{Kind::kNormal, 0, xavier_std(sizes, gain)};
  });
}

Init Init::kaiming_uniform(double slope, FanMode mode, Nonlinearity nonlinearity) {
  return Init([=](at::IntArrayRef sizes) {
    return uniform_of_std(kaiming_std(sizes, slope, mode, nonlinearity));
  });
}

Init Init::kaiming_normal(double slope, FanMode mode, Nonlinearity nonlinearity) {
  return Init([=](at::IntArrayRef sizes) {
    return Element{Kind::kNormal, 0, kaiming_std(sizes, slope, mode, nonlinearity)};
  });
}

Init Init::trunc_normal(double mean, double std, double low, double high) {
  check<ConfigError>(std > 0 && low < high, "nn.Init.trunc_normal: std ", std, " from ", low,
                     " to ", high, ", expected std > 0 and low < high");
  return Init([=](at::IntArrayRef) { return Element{Kind::kTruncNormal, mean, std, low, high}; });
}

Init Init::orthogonal(double gain) {
  Init init([](at::IntArrayRef sizes) {
    check<ShapeError>(sizes.size() >= 2, "nn.Init.orthogonal: a weight ", core::list_text(sizes),
                      ", expected 2 dims or more");
    return Element{};
  });
  init.fill_ = [gain](at::Tensor& whole, uint64_t seed) { fill_orthogonal(whole, gain, seed); };
  return init;
}

Init Init::eye() {
  return Init([](at::IntArrayRef sizes) {
    check<ShapeError>(sizes.size() == 2, "nn.Init.eye: a weight ", core::list_text(sizes),
                      ", expected 2 dims");
    return Element{Kind::kEye};
  });
}

Init Init::linear_default() { return kaiming_uniform(std::sqrt(5.0)); }

Init Init::linear_default_bias(int64_t in_features) {
  const double bound = in_features > 0 ? 1 / std::sqrt(static_cast<double>(in_features)) : 0;
  return uniform(-bound, bound);
}

Init Init::custom(std::function<void(at::Tensor&, uint64_t)> fill) {
  check<ConfigError>(static_cast<bool>(fill), "nn.Init.custom: no function; expected one");
  Init init([](at::IntArrayRef) { return Element{}; });
  init.fill_ = std::move(fill);
  return init;
}

at::Tensor make_shard(const Init& init, const ShardSpec& given, uint64_t seed, uint64_t stream) {
  const ShardSpec spec = checked_spec(given);
  const Element element = init.element(spec.sizes);
  const at::NoGradGuard no_grad;
  std::vector<int64_t> sizes = spec.sizes;
  sizes[static_cast<size_t>(spec.dim)] = shard::total_length(spec.ranges);
  at::Tensor shard = at::empty(sizes, at::TensorOptions(spec.dtype).device(spec.device));
  if (spec.device.is_meta() || shard.numel() == 0) return shard;
  if (init.fill()) {
    cut_whole(shard, init, spec, seed);
  } else {
    fill_elements(shard, ElementStream(element, spec.sizes, seed, stream), ShardRuns(spec));
  }
  return shard;
}

uint64_t agreed_seed(const dist::Group& group) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  uint64_t own = 0;
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    own = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  }
  at::Tensor seed = at::empty({1}, at::kLong);
  seed.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(own);
  group.broadcast(seed, 0);
  return static_cast<uint64_t>(seed.const_data_ptr<int64_t>()[0]);
}

}  // namespace weft::nn
