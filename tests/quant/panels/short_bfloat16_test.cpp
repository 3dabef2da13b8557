#include "weft/quant/panels/short_bfloat16.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/ops/tensor_checks.h"
#include "weft/core/error.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/panel_layout.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::quant {
namespace {

using weft::test::expect_close;
using weft::test::seeded;

// Numbers of all magnitudes, which 12 bits don't hold.
at::Tensor any_bfloat16(int64_t out, int64_t in) {
  const at::Tensor magnitude = at::exp2(at::randint(-120, 120, {out, in}).to(at::kFloat));
  return (magnitude * seeded({out, in}, 3, at::kFloat)).to(at::kBFloat16);
}

// Weights as models have them: few numbers are of other magnitudes than the rest.
at::Tensor usual_bfloat16(int64_t out, int64_t in) {
  at::Tensor w = seeded({out, in}, 9, at::kFloat).to(at::kBFloat16);
  w.view({-1}).slice(0, 5, w.numel(), 301).mul_(1e-9);
  w.view({-1}).slice(0, 7, w.numel(), 400).zero_();
  w.view({-1})[w.numel() - 1] = -1e30;
  return w;
}

// One panel as a kernel writes it, and its exceptions.
std::pair<std::vector<uint8_t>, std::vector<std::pair<uint32_t, uint16_t>>> written(
    const kernels::PanelKernel& kernel, const at::Tensor& w, int64_t panel) {
  std::vector<uint8_t> bytes(
      static_cast<size_t>(w.size(1) * kernels::kShortBytes / kernels::kShortColumns), 0xAA);
  std::vector<std::pair<uint32_t, uint16_t>> exceptions;
  const ShortBFloat16 numbers(UpperBytes::choose(w).value());
  for (const auto& each : numbers.write(kernel, w, panel, bytes.data()))
    exceptions.emplace_back(each.place, each.bits);
  return {bytes, exceptions};
}

TEST(ShortBFloat16, KernelsWriteTheSame) {
  const at::Tensor w = usual_bfloat16(37, 288);
  for (const auto* kernel : kernels::runnable_panel_kernels()) {
    for (int64_t panel = 0; panel < 3; ++panel) {
      EXPECT_EQ(written(*kernel, w, panel), written(kernels::kPlainPanelKernel, w, panel))
          << kernel->name << ", panel " << panel;
    }
  }
  EXPECT_FALSE(written(kernels::kPlainPanelKernel, w, 0).second.empty());
}

TEST(ShortBFloat16, KeepsAllNumbers) {
  for (const auto& [out, in] : {std::pair(16, 32), std::pair(21, 96), std::pair(70, 160)}) {
    for (const at::Tensor& w : {usual_bfloat16(out, in), any_bfloat16(out, in)}) {
      const PanelMatrix panels = to_panels(w);
      EXPECT_TRUE(at::equal(panel_values(panels), w.to(at::kFloat))) << out << " rows";
      for (const int64_t tokens : {1, 5, 16, 17}) {
        const at::Tensor x = at::ones({tokens, in});
        for (const auto* kernel : kernels::runnable_panel_kernels()) {
          expect_close(panel_matmul_on(*kernel, x, panels),
                       at::matmul(x.to(at::kDouble), w.to(at::kDouble).t()),
                       core::join(kernel->name, ", ", out, " rows, ", tokens, " tokens"), 1e-5);
        }
      }
    }
  }
  EXPECT_EQ(to_panels(usual_bfloat16(70, 160)).form.numbers, kernels::PanelNumbers::kShortBFloat16);
  EXPECT_EQ(to_panels(any_bfloat16(70, 160)).form.numbers, kernels::PanelNumbers::kBFloat16);
}

TEST(ShortBFloat16, TakesTwelveBits) {
  // And where each panel's exceptions begin.
  EXPECT_EQ(to_panels(at::ones({32, 64}, at::kBFloat16)).num_bytes(), 32 * 96 + 3 * 8);
  EXPECT_EQ(to_panels(any_bfloat16(16, 32)).num_bytes(), 16 * 64);
}

}  // namespace
}  // namespace weft::quant
