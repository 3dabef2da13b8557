#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "weft/nn/linear_like.h"

namespace weft::models {

/// The linears that a fused pass has taken out of modules, which may exchange them meanwhile.
class HeldLinears {
 public:
  /// What the module holds now if it is an Impl, else null.
  template <class Impl>
  std::shared_ptr<Impl> take(const nn::LinearHolder& holder) {
    const auto inner = holder.inner();
    held_.push_back({&holder, inner});
    return std::dynamic_pointer_cast<Impl>(inner);
  }
  /// Whether the modules still hold what they held then, as far as it was taken.
  bool are_current() const {
    return std::ranges::all_of(
        held_, [](const Held& each) { return each.holder->inner() == each.inner.lock(); });
  }

 private:
  struct Held {
    const nn::LinearHolder* holder;
    std::weak_ptr<nn::LinearLike> inner;
  };
  std::vector<Held> held_;
};

}  // namespace weft::models
