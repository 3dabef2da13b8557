#include "weft/cuda/device.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"

namespace weft::cuda {
namespace {

using testing::error_text;

TEST(CudaDevice, ItsAbsenceIsSaidInOneLine) {
  if (has_device()) GTEST_SKIP() << "there is a GPU";
  const std::string text = error_text([] { select_device("--device", 0); });
  if (is_built()) {
    EXPECT_EQ(text.find("ConfigError: --device: cuda, expected an NVIDIA GPU and its driver, got "),
              0U)
        << text;
    EXPECT_NE(text.find("; use --device cpu"), std::string::npos) << text;
  } else {
    EXPECT_EQ(
        text,
        "ConfigError: --device: cuda, expected a build with CUDA, got one without; build where "
        "nvcc is found, with -DWEFT_CUDA=ON, or use --device cpu");
  }
}

TEST(CudaDevice, ABuildWithCudaNeedsNoGpuToBeOne) {
  if (!is_built()) GTEST_SKIP() << "this build is without CUDA";
  EXPECT_EQ(error_text([] { require_built("--device"); }), "no error");
}

}  // namespace
}  // namespace weft::cuda
