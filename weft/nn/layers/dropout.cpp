#include "weft/nn/layers/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/random/philox.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Four elements share one block of 128 bits; an element is kept if its 32 bits are at least
// p * 2^32.
class KeptElements {
 public:
  KeptElements(const DropoutDraw& draw, uint64_t step)
      : limit_(static_cast<uint64_t>(draw.p * 0x1p32)),
        key_{static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32)},
        stream_(step << 30 | draw.layer) {}

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
  // Steps and layers in one number: a billion layers, 2^34 steps.
  uint64_t stream_;
  uint64_t block_ = 0;
  bool has_block_ = false;
  std::array<uint32_t, 4> block_bits_{};
};

void check_draw(const DropoutDraw& draw) {
  check<ConfigError>(draw.p >= 0 && draw.p < 1, "nn.Dropout: p ", draw.p,
                     ", expected 0 or more, below 1");
  check<ConfigError>(draw.layer < uint64_t{1} << 30, "nn.Dropout: layer ", draw.layer,
                     ", expected less than 2^30");
}

// What every element of x is multiplied by.
at::Tensor factors(const at::Tensor& x, const DropoutDraw& draw, const ActivationPlace& place) {
  const bool is_whole = place.whole_size == 0;
  const int64_t held = x.dim() == 0 ? 0 : x.size(-1);
  const std::vector<shard::Range> ranges =
      is_whole ? std::vector<shard::Range>{{0, held}} : place.ranges;
  const int64_t whole = is_whole ? held : place.whole_size;
  const int64_t rows = held == 0 ? 0 : x.numel() / held;
  at::Tensor mask = at::empty(x.sizes(), at::kFloat);
  auto* out = mask.mutable_data_ptr<float>();
  const auto kept = static_cast<float>(1 / (1 - draw.p));
  at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
    KeptElements elements(draw, place.step);
    for (int64_t row = begin; row < end; ++row) {
      float* at = out + row * held;
      for (const shard::Range& range : ranges) {
        elements.fill(at, (place.first_row + row) * whole + range.start, range.length, kept);
        at += range.length;
      }
    }
  });
  return mask.to(x.scalar_type());
}

struct DropCall : torch::CustomClassHolder {
  DropCall(const DropoutDraw& d, ActivationPlace p) : draw(d), place(std::move(p)) {}
  DropoutDraw draw;
  ActivationPlace place;
};
using DropCallPtr = c10::intrusive_ptr<DropCall>;

// Linear in x, so its backward is the same again.
struct DropFunction : torch::autograd::Function<DropFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const DropCallPtr& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return x * factors(x, call->draw, call->place);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<DropCall>(context->saved_data["call"].toCapsule());
    return {DropFunction::apply(grads[0], call), at::Tensor()};
  }
};

thread_local const ActivationPlace* current_place = nullptr;

}  // namespace

PlaceScope::PlaceScope(const ActivationPlace& place)
    : outer_(std::exchange(current_place, &place)) {}

PlaceScope::~PlaceScope() { current_place = outer_; }

const ActivationPlace* PlaceScope::current() { return current_place; }

at::Tensor dropped(const at::Tensor& x, const DropoutDraw& draw, const ActivationPlace& place) {
  check_draw(draw);
  if (draw.p == 0) return x;
  const int64_t held = x.dim() == 0 ? 0 : x.size(-1);
  check<ShapeError>(place.whole_size == 0 || held == shard::total_length(place.ranges),
                    "nn.Dropout: input ", core::list_text(x.sizes()),
                    ", expected the last dim to be ", shard::total_length(place.ranges),
                    ", this rank's ranges of ", place.whole_size);
  return DropFunction::apply(x, c10::make_intrusive<DropCall>(draw, place));
}

DropoutImpl::DropoutImpl(double p, uint64_t seed, uint64_t layer) : draw_{p, seed, layer} {
  check_draw(draw_);
}

at::Tensor DropoutImpl::forward(const at::Tensor& x, const ActivationPlace& place) const {
  return is_training() ? dropped(x, draw_, place) : x;
}

}  // namespace weft::nn
