#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "weft/models/decoder/decoder_block.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::models {

/// The linears of a dense decoder block as an Impl; null where one is something else.
template <class Impl>
struct BlockLinears {
  std::shared_ptr<Impl> q, k, v, o, gate, up, down;

  std::array<std::shared_ptr<Impl>, 7> all() const { return {q, k, v, o, gate, up, down}; }
};

/// The linears that a fused pass has taken out of modules, which may exchange them meanwhile.
class HeldLinears {
 public:
  /// Those of a block whose feed-forward layer is not empty.
  template <class Impl>
  BlockLinears<Impl> take_all(const DecoderBlock& block) {
    const AttentionParts& parts = block->attention()->parts();
    const FeedForwardLayer& ffn = block->feed_forward();
    return {take<Impl>(*parts.q_proj),     take<Impl>(*parts.k_proj),
            take<Impl>(*parts.v_proj),     take<Impl>(*parts.o_proj),
            take<Impl>(*ffn->gate_proj()), take<Impl>(*ffn->up_proj()),
            take<Impl>(*ffn->down_proj())};
  }
  /// Whether the modules still hold what they held then, as far as it was taken.
  bool are_current() const {
    return std::ranges::all_of(
        held_, [](const Held& each) { return each.holder->inner() == each.inner.lock(); });
  }

 private:
  // What the module holds now if it is an Impl, else null.
  template <class Impl>
  std::shared_ptr<Impl> take(const nn::LinearHolder& holder) {
    const auto inner = holder.inner();
    held_.push_back({&holder, inner});
    return std::dynamic_pointer_cast<Impl>(inner);
  }

  struct Held {
    const nn::LinearHolder* holder;
    std::weak_ptr<nn::LinearLike> inner;
  };
  std::vector<Held> held_;
};

}  // namespace weft::models
