#include <ATen/ATen.h>

#include <cmath>

#include "weft/core/error.h"
#include "weft/train/optimizer/elementwise.h"

namespace weft::train {
namespace {

void check_beta(const char* where, const char* name, double value) {
  core::check<core::ConfigError>(value >= 0 && value < 1, "train.", where, ": ", name,
                                 ": expected 0 to 1 without 1, got ", value);
}

class Adamw : public ElementwiseOptimizer {
 public:
  Adamw(const AdamwOptions& options, std::vector<OwnedSlice> slices)
      : ElementwiseOptimizer(std::move(slices), {"exp_avg", "exp_avg_sq"}), options_(options) {}

 protected:
  UpdateNumbers numbers(double learning_rate, double gradient_scale) const override {
    const auto step = static_cast<double>(num_steps_);
    UpdateNumbers n;
    n.gradient_scale = static_cast<float>(gradient_scale);
    n.beta2 = static_cast<float>(options_.beta2);
    n.rest1 = static_cast<float>(1 - options_.beta1);
    n.rest2 = static_cast<float>(1 - options_.beta2);
    n.epsilon = static_cast<float>(options_.epsilon);
    n.root_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, step)));
    n.step_size = static_cast<float>(learning_rate / (1 - std::pow(options_.beta1, step)));
    return n;
  }
  UpdateFunction function() const override { return update_adamw; }
  void update_tensors(const UpdateRun& run, const UpdateNumbers& n) const override {
    const at::Tensor g = run.gradient * n.gradient_scale;
    run.states[0].lerp_(g, n.rest1);
    run.states[1].mul_(n.beta2).addcmul_(g, g, n.rest2);
    const at::Tensor root = run.states[1].sqrt().mul_(n.root_correction2).add_(n.epsilon);
    run.master.mul_(n.keep).addcdiv_(run.states[0], root, -n.step_size);
  }

 private:
  AdamwOptions options_;
};

class Sgd : public ElementwiseOptimizer {
 public:
  Sgd(const SgdOptions& options, std::vector<OwnedSlice> slices)
      : ElementwiseOptimizer(std::move(slices), {"momentum"}), options_(options) {}

 protected:
  UpdateNumbers numbers(double learning_rate, double gradient_scale) const override {
    UpdateNumbers n;
    n.gradient_scale = static_cast<float>(gradient_scale);
    n.learning_rate = static_cast<float>(learning_rate);
    n.beta1 = static_cast<float>(options_.momentum);
    return n;
  }
  UpdateFunction function() const override {
    return options_.nesterov ? update_sgd_nesterov : update_sgd;
  }
  void update_tensors(const UpdateRun& run, const UpdateNumbers& n) const override {
    const at::Tensor g = run.gradient * n.gradient_scale;
    const at::Tensor& momentum = run.states[0].mul_(n.beta1).add_(g);
    const at::Tensor update = options_.nesterov ? g.add(momentum, n.beta1) : momentum;
    run.master.mul_(n.keep).sub_(update, n.learning_rate);
  }

 private:
  SgdOptions options_;
};

class Lion : public ElementwiseOptimizer {
 public:
  Lion(const LionOptions& options, std::vector<OwnedSlice> slices)
      : ElementwiseOptimizer(std::move(slices), {"exp_avg"}), options_(options) {}

 protected:
  UpdateNumbers numbers(double learning_rate, double gradient_scale) const override {
    UpdateNumbers n;
    n.gradient_scale = static_cast<float>(gradient_scale);
    n.learning_rate = static_cast<float>(learning_rate);
    n.beta1 = static_cast<float>(options_.beta1);
    n.beta2 = static_cast<float>(options_.beta2);
    n.rest1 = static_cast<float>(1 - options_.beta1);
    n.rest2 = static_cast<float>(1 - options_.beta2);
    return n;
  }
  UpdateFunction function() const override { return update_lion; }
  void update_tensors(const UpdateRun& run, const UpdateNumbers& n) const override {
    const at::Tensor g = run.gradient * n.gradient_scale;
    const at::Tensor sign = (run.states[0] * n.beta1).add_(g, n.rest1).sign_();
    run.states[0].mul_(n.beta2).add_(g, n.rest2);
    run.master.mul_(n.keep).sub_(sign, n.learning_rate);
  }

 private:
  LionOptions options_;
};

}  // namespace

std::unique_ptr<ElementwiseOptimizer> make_adamw(const AdamwOptions& options,
                                                 std::vector<OwnedSlice> slices) {
  check_beta("adamw", "beta1", options.beta1);
  check_beta("adamw", "beta2", options.beta2);
  core::check<core::ConfigError>(options.epsilon > 0,
                                 "train.adamw: epsilon: expected above 0, got ", options.epsilon);
  return std::make_unique<Adamw>(options, std::move(slices));
}

std::unique_ptr<ElementwiseOptimizer> make_sgd(const SgdOptions& options,
                                               std::vector<OwnedSlice> slices) {
  check_beta("sgd", "momentum", options.momentum);
  return std::make_unique<Sgd>(options, std::move(slices));
}

std::unique_ptr<ElementwiseOptimizer> make_lion(const LionOptions& options,
                                                std::vector<OwnedSlice> slices) {
  check_beta("lion", "beta1", options.beta1);
  check_beta("lion", "beta2", options.beta2);
  return std::make_unique<Lion>(options, std::move(slices));
}

}  // namespace weft::train
