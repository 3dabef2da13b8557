#include "weft/nn/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "weft/core/error.h"
#include "weft/nn/philox.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;

// Four elements share one block of 128 bits; an element is kept if its 32 bits are at least
// p * 2^32.
class KeptElements {
 public:
  KeptElements(double p, uint64_t seed, uint64_t stream)
      : limit_(static_cast<uint64_t>(p * 0x1p32)),
        key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        stream_(stream) {}

  void fill(float* out, int64_t index, int64_t length, float kept) {
    for (int64_t i = 0; i < length; ++i) {
      out[i] = bits(static_cast<uint64_t>(index + i)) >= limit_ ? kept : 0;
    }
  }

 private:
  uint32_t bits(uint64_t index) {
    if (index / 4 != block_ || !has_block_) {
      block_ = index / 4;
      has_block_ = true;
      block_bits_ = philox({static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32),
                            static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                           key_);
    }
    return block_bits_[index % 4];
  }

  uint64_t limit_;
  std::array<uint32_t, 2> key_;
  uint64_t stream_;
  uint64_t block_ = 0;
  bool has_block_ = false;
  std::array<uint32_t, 4> block_bits_{};
};

// Steps and layers in one number: a billion layers, 2^34 steps.
uint64_t stream_of(uint64_t layer, uint64_t step) { return step << 30 | layer; }

}  // namespace

DropoutImpl::DropoutImpl(double p, uint64_t seed, uint64_t layer)
    : p_(p), seed_(seed), layer_(layer) {
  check<ConfigError>(p >= 0 && p < 1, "nn.Dropout: p ", p, ", expected 0 or more, below 1");
  check<ConfigError>(layer < uint64_t{1} << 30, "nn.Dropout: layer ", layer,
                     ", expected less than 2^30");
}

at::Tensor DropoutImpl::forward(const at::Tensor& x, const ActivationPlace& place) const {
  if (p_ == 0 || !is_training()) return x;
  const bool is_whole = place.whole_size == 0;
  const int64_t held = x.dim() == 0 ? 0 : x.size(-1);
  check<ShapeError>(is_whole || held == shard::total_length(place.ranges), "nn.Dropout: input ",
                    core::list_text(x.sizes()), ", expected the last dim to be ",
                    shard::total_length(place.ranges), ", this rank's ranges of ",
                    place.whole_size);
  const std::vector<shard::Range> ranges =
      is_whole ? std::vector<shard::Range>{{0, held}} : place.ranges;
  const int64_t whole = is_whole ? held : place.whole_size;
  const int64_t rows = held == 0 ? 0 : x.numel() / held;
  at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  auto* out = mask.mutable_data_ptr<float>();
  const auto kept = static_cast<float>(1 / (1 - p_));
  at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    KeptElements elements(p_, seed_, stream_of(layer_, place.step));
    for (int64_t row = begin; row < end; ++row) {
      float* at = out + row * held;
      for (const shard::Range& range : ranges) {
        elements.fill(at, (place.first_row + row) * whole + range.start, range.length, kept);
        at += range.length;
      }
    }
  });
  return x * mask.to(x.scalar_type());
}

}  // namespace weft::nn
