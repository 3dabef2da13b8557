#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace weft::nn {

/// Tensors to tensors; also reads what it has captured (parameters, constants).
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// function(inputs), without keeping what its backward needs: only the inputs are kept, and
/// backward runs the function again, under the state that the default CPU generator had, then
/// backward through that. Outputs, gradients of the inputs and those that are added to captured
/// parameters equal a plain call's, bit for bit. The function must do the same each time; its
/// collectives run twice, in the same order on all ranks. `inputs` are defined tensors of any
/// type. Without gradients recorded it is a plain call. Throws ConfigError in backward if a
/// gradient of the gradient is asked for. Source: Chen et al. 2016, arXiv:1604.06174.
std::vector<at::Tensor> checkpoint(TensorFunction function, const std::vector<at::Tensor>& inputs);

/// The same for one input and one output.
at::Tensor checkpoint(const std::function<at::Tensor(const at::Tensor&)>& function,
                      const at::Tensor& input);

}  // namespace weft::nn
