#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/quant/affine.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::quant {
namespace {

using testing::error_text;
using weft::test::seeded;

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

// Groups of rows by matrices of their own, taken from rows that are rounded already, give what each
// group gives alone.
TEST(PanelInputs, GroupsAreMultipliedAsIfAlone) {
  constexpr int64_t kIn = 96, kOut = 40, kRows = 37;
  const at::Tensor x = seeded({kRows, kIn}, 1, at::kFloat);
  const std::vector<int64_t> rows = {3, 3, 36, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 21};
  const std::vector<int64_t> starts = {0, 1, 3, 13};
  for (const auto* kernel : kernels::runnable_panel_kernels()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kByte}) {
      for (const int64_t tokens : {1, 37}) {
        std::vector<PanelMatrix> matrices;
        for (uint64_t i = 0; i < starts.size(); ++i) {
          const at::Tensor w = seeded({kOut, kIn}, 10 + i, at::kFloat);
          matrices.push_back(type == at::kByte ? to_panels(quantize_affine(w, 4, 32, at::kHalf), 16)
                                               : to_panels(w.to(type)));
        }
        PanelInputs all(PanelInputs::Wants{16, true, true, true});
        PanelInputs groups(PanelInputs::Wants::of(matrices.front())), alone(groups.wants());
        const auto row_of = [&](int64_t row) { return x.const_data_ptr<float>() + row * kIn; };
        all.take(*kernel, {kRows, kIn, tokens}, [&](int64_t row, float*) { return row_of(row); });
        groups.take_rows(*kernel, all, rows, starts);
        const at::Tensor y = at::zeros({15, 48}), expected = at::zeros_like(y);
        std::vector<PanelProduct> products;
        for (size_t i = 0; i < starts.size(); ++i) {
          const int64_t start = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : 15;
          const PanelView w(matrices[i]);
          products.push_back(
              {w, y.mutable_data_ptr<float>() + start * 48, 48, static_cast<int64_t>(i)});
          alone.take(*kernel, {end - start, kIn, tokens}, [&](int64_t row, float*) {
            return row_of(rows[static_cast<size_t>(start + row)]);
          });
          multiply(
              *kernel, alone,
              std::array{PanelProduct{w, expected.mutable_data_ptr<float>() + start * 48, 48}});
        }
        multiply(*kernel, groups, products);
        EXPECT_TRUE(at::equal(y, expected)) << kernel->name << ", " << c10::toString(type);
        EXPECT_GT(expected.abs().max().item<double>(), 1);
      }
    }
  }
}

TEST(PanelInputs, RefuseRowsWithoutTheFormsThatAreWanted) {
  const at::Tensor x = seeded({2, 32}, 1, at::kFloat);
  PanelInputs codes(PanelInputs::Wants{16, false, false}), numbers({0, true, false}),
      other(codes.wants());
  const auto& kernel = kernels::active_panel_kernel();
  const std::vector<int64_t> rows = {2};
  codes.take(kernel, {2, 32, 1},
             [&](int64_t row, float*) { return x.const_data_ptr<float>() + row * 32; });
  EXPECT_EQ(error_text([&] { numbers.take_rows(kernel, codes, rows, {}); }),
            "ShapeError: quant.PanelInputs.take_rows: rows without forms that are wanted, or of 1 "
            "groups, expected all forms and one group");
  EXPECT_EQ(error_text([&] { other.take_rows(kernel, codes, rows, {}); }),
            "ShapeError: quant.PanelInputs.take_rows: row 2, expected 0 to 1");
}

}  // namespace
}  // namespace weft::quant
