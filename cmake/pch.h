// Precompiled: headers that cost seconds in every file that uses libtorch.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
