#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/models/decoder/decoder_block.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::models {

/// The linears of a decoder block's attention as an Impl; null where one is something else, or
/// where there is none.
template <class Impl>
struct AttentionLinears {
  std::shared_ptr<Impl> q, k, v, o;
};

/// The same of a feed-forward layer, or of an expert.
template <class Impl>
struct FeedForwardLinears {
  std::shared_ptr<Impl> gate, up, down;
};

/// Those of a dense block.
template <class Impl>
struct BlockLinears : AttentionLinears<Impl>, FeedForwardLinears<Impl> {
  std::array<std::shared_ptr<Impl>, 7> all() const {
    return {this->q, this->k, this->v, this->o, this->gate, this->up, this->down};
  }
};

/// The linears that a fused pass has taken out of modules, which may exchange them meanwhile.
class HeldLinears {
 public:
  /// Those of a block whose token mixer is attention.
  template <class Impl>
  AttentionLinears<Impl> take_attention(const DecoderBlock& block) {
    const AttentionParts& parts = block->attention()->parts();
    return {
        take<Impl>(*parts.q_proj), parts.k_proj.is_empty() ? nullptr : take<Impl>(*parts.k_proj),
        parts.v_proj.is_empty() ? nullptr : take<Impl>(*parts.v_proj), take<Impl>(*parts.o_proj)};
  }
  /// Those of a layer that is not empty.
  template <class Impl>
  FeedForwardLinears<Impl> take_feed_forward(const FeedForwardLayer& ffn) {
    return {take<Impl>(*ffn->gate_proj()), take<Impl>(*ffn->up_proj()),
            take<Impl>(*ffn->down_proj())};
  }
  /// Those of a block whose attention and feed-forward layer are not empty.
  template <class Impl>
  BlockLinears<Impl> take_all(const DecoderBlock& block) {
    return {take_attention<Impl>(block), take_feed_forward<Impl>(block->feed_forward())};
  }
  template <class Impl>
  FeedForwardLinears<Impl> take_expert(const nn::Expert& expert) {
    return {take_partial<Impl>(expert->gate()), take_partial<Impl>(expert->up()),
            take_partial<Impl>(expert->down())};
  }
  /// What the module holds now if it is an Impl, else null.
  template <class Impl>
  std::shared_ptr<Impl> take_any(const nn::LinearHolder& holder) {
    return take<Impl>(holder);
  }
  /// The same of a linear of which a layer may have hundreds.
  template <class Impl>
  std::shared_ptr<Impl> take_partial(const nn::PartialLinear& holder) {
    return take<Impl>(*holder, partials_);
  }

  /// Whether the modules still hold what they held then, as far as it was taken.
  bool are_current() const {
    if (!std::ranges::all_of(held_, &Held::is_current)) return false;
    // Looking at all experts would take longer than running a few.
    const uint64_t exchanges = nn::PartialLinearImpl::num_exchanges();
    if (exchanges == seen_exchanges_) return true;
    if (!std::ranges::all_of(partials_, &Held::is_current)) return false;
    seen_exchanges_ = exchanges;
    return true;
  }

 private:
  struct Held {
    const nn::LinearHolder* holder;
    std::weak_ptr<nn::LinearLike> inner;

    bool is_current() const { return holder->inner() == inner.lock(); }
  };

  template <class Impl>
  std::shared_ptr<Impl> take(const nn::LinearHolder& holder) {
    return take<Impl>(holder, held_);
  }
  template <class Impl>
  static std::shared_ptr<Impl> take(const nn::LinearHolder& holder, std::vector<Held>& list) {
    const auto inner = holder.inner();
    list.push_back({&holder, inner});
    return std::dynamic_pointer_cast<Impl>(inner);
  }

  std::vector<Held> held_, partials_;
  mutable uint64_t seen_exchanges_ = nn::PartialLinearImpl::num_exchanges();
};

}  // namespace weft::models
