#pragma once

#include <gtest/gtest.h>

#include "weft/cuda/device.h"

namespace weft::test {

/// Tests that run kernels: skipped without a GPU. The programs *_cuda_on_cpu have none and need
/// none: there, kernels are compiled for the processor (tests/support/cuda_on_cpu).
class NeedsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::has_device()) GTEST_SKIP() << "no CUDA device";
    cuda::select_device("test", 0);
  }
};

}  // namespace weft::test
