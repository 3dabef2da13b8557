#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::quant {
namespace {

using test::seeded;
using testing::error_text;

std::vector<std::vector<std::byte>> bytes_of(const PanelInputs& inputs) {
  std::vector<std::vector<std::byte>> all;
  for (const auto& [data, row_bytes] : inputs.memory()) {
    all.emplace_back(data, data + inputs.num_rows() * row_bytes);
  }
  return all;
}

TEST(PanelInputs, PartsAreTheBytesOfTheWhole) {
  const at::Tensor x = seeded({75, 96}, 1, at::kFloat);
  const auto row_of = [&](int64_t row, float* /*room*/) {
    return x.const_data_ptr<float>() + row * 96;
  };
  for (const auto* kernel : kernels::runnable_panel_kernels()) {
    for (const PanelInputs::Wants& wants :
         {PanelInputs::Wants{16, true, false}, {8, false, false}, {0, false, true}}) {
      for (const int64_t tokens : {75, 5}) {
        PanelInputs whole(wants), parts(wants);
        whole.take(*kernel, {75, 96, tokens}, row_of);
        const auto expected = bytes_of(whole);
        ASSERT_FALSE(expected.empty());
        std::vector<std::vector<std::byte>> got(expected.size());
        for (const auto& [first, count] : {std::pair{0, 32}, {32, 32}, {64, 11}, {75, 0}}) {
          parts.take_part(*kernel, {75, 96, tokens, 128}, first == 75 ? 80 : first, count, row_of);
          for (size_t i = 0; i < got.size(); ++i) {
            const auto [data, row_bytes] = parts.memory()[i];
            got[i].insert(got[i].end(), data + first * row_bytes,
                          data + (first + count) * row_bytes);
          }
        }
        EXPECT_EQ(got, expected) << kernel->name << ", " << tokens << " tokens";
      }
    }
  }
  PanelInputs inputs(PanelInputs::Wants{16, false, false});
  EXPECT_EQ(error_text([&] {
              inputs.take_part(kernels::active_panel_kernel(), {75, 96, 75}, 8, 8, row_of);
            }),
            "ShapeError: quant.PanelInputs: a part from row 8, expected a multiple of 16");
}

}  // namespace
}  // namespace weft::quant
