#include "weft/nn/layers/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>
#include <utility>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// The default generator has another state until this goes out of scope.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(const at::Tensor& state) : former_(random_state()) {
    set_random_state(state);
  }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;
  ~RandomStateGuard() { set_random_state(former_); }

 private:
  at::Tensor former_;
};

struct RecordedCall : torch::CustomClassHolder {
  RecordedCall(TensorFunction f, at::Tensor state)
      : function(std::move(f)), random(std::move(state)) {}
  TensorFunction function;
  at::Tensor random;
};

// Leaves that take the place of the saved inputs in the second run.
variable_list fresh_leaves(const variable_list& saved) {
  variable_list leaves;
  for (const at::Tensor& input : saved) {
    leaves.push_back(input.detach().set_requires_grad(input.requires_grad()));
  }
  return leaves;
}

// Backward from those outputs that have a gradient, into leaves and captured parameters.
void run_backward(const variable_list& outputs, const variable_list& grads) {
  variable_list roots, root_grads;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad() || !grads[i].defined()) continue;
    roots.push_back(outputs[i]);
    root_grads.push_back(grads[i]);
  }
  if (!roots.empty()) torch::autograd::backward(roots, root_grads);
}

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  // `anchor` needs a gradient, so that the outputs do even if only captured parameters train.
  static variable_list forward(AutogradContext* context, const at::Tensor& /*anchor*/,
                               const c10::intrusive_ptr<RecordedCall>& call,
                               at::TensorList inputs) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->save_for_backward(inputs.vec());
    return call->function(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    core::check<core::ConfigError>(!at::GradMode::is_enabled(),
                                   "nn.checkpoint: a gradient of the gradient is not defined; call "
                                   "backward without create_graph");
    const auto call =
        c10::static_intrusive_pointer_cast<RecordedCall>(context->saved_data["call"].toCapsule());
    const variable_list leaves = fresh_leaves(context->get_saved_variables());
    variable_list outputs;
    {
      const RandomStateGuard same_random(call->random);
      const at::AutoGradMode with_grad(true);
      outputs = call->function(leaves);
    }
    run_backward(outputs, grads);
    variable_list result = {at::Tensor(), at::Tensor()};
    for (const at::Tensor& leaf : leaves) {
      result.push_back(leaf.requires_grad() ? leaf.grad() : at::Tensor());
    }
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> checkpoint(TensorFunction function, const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  const auto call = c10::make_intrusive<RecordedCall>(std::move(function), random_state());
  const at::Tensor anchor = at::empty({0}).set_requires_grad(true);
  return CheckpointFunction::apply(anchor, call, at::TensorList(inputs));
}

at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function,
                      const at::Tensor& input) {
  return checkpoint(
             [function](const std::vector<at::Tensor>& inputs) {
               return std::vector<at::Tensor>{function(inputs[0])};
             },
             {input})
      .front();
}

}  // namespace weft::nn
