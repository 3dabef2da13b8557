#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weft/core/error.h"

namespace weft::nn {

/// What takes the place of the tensors and modules that a module has registered and holds as
/// members.
struct MemberExchange {
  /// Gives what stands for `own`, the module's parameter of that name.
  std::function<at::Tensor(const std::string& name, const at::Tensor& own)> parameter;
  /// Gives what stands for a module within it, of the same kind.
  std::function<std::shared_ptr<torch::nn::Module>(const std::shared_ptr<torch::nn::Module>&)>
      child;

  template <typename Kind>
  std::shared_ptr<Kind> child_of(const std::shared_ptr<Kind>& own) const {
    return std::dynamic_pointer_cast<Kind>(child(own));
  }
};

/// A tensor of its own with x's numbers and requires_grad, on `device` or where x is; undefined if
/// x is.
inline at::Tensor copy_of(const at::Tensor& x, const std::optional<torch::Device>& device) {
  if (!x.defined()) return x;
  const at::NoGradGuard no_grad;
  const bool moves = device.has_value() && *device != x.device();
  const at::Tensor copy = moves ? x.detach().to(*device) : x.detach().clone();
  return copy.is_floating_point() ? copy.set_requires_grad(x.requires_grad()) : copy;
}

/// Gives a module torch's clone(): a module of its own with the same numbers and cut on the same
/// rank, also as a member of a torch::nn::Cloneable. A group is shared, not copied; nothing is
/// collective. Derived has `exchange_members(const MemberExchange&)`, which calls it for each
/// parameter and module that it holds.
template <typename Derived, typename Base>
class Cloned : public Base {
 public:
  using Base::Base;

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    return static_cast<const Derived&>(*this).copied(device);
  }

 protected:
  std::shared_ptr<Derived> copied(const std::optional<torch::Device>& device) const {
    auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    copy->exchange_members(
        {[&](const std::string&, const at::Tensor& own) { return copy_of(own, device); },
         [&](const std::shared_ptr<torch::nn::Module>& own) { return own->clone(device); }});
    return copy;
  }

 private:
  void clone_(torch::nn::Module& other, const std::optional<torch::Device>& device) override {
    const auto copy = std::dynamic_pointer_cast<Derived>(other.clone(device));
    core::check<core::ConfigError>(copy != nullptr, "nn.clone: reset() makes a ", this->name(),
                                   ", expected a ", other.name(), " as the module that is cloned");
    static_cast<Derived&>(*this) = *copy;
  }
};

}  // namespace weft::nn
