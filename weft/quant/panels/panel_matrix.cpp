#include "weft/quant/panels/panel_matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::PanelNumbers;

// Where a row's blocks lie among those of all rows, in tiles.
struct Place {
  Place(int64_t row, int64_t rows, int64_t blocks, int64_t tile)
      : first(row / tile * tile * blocks + row % tile),
        stride(std::min(tile, rows - row / tile * tile)) {}
  int64_t first, stride;
};

bool is_bfloat16(const PanelView& w) {
  return w.panels.form.numbers == PanelNumbers::kBFloat16 || w.short_numbers != nullptr;
}

bool serves(const PanelInputs& x, const PanelView& w) {
  if (is_bfloat16(w)) return x.wants().bfloat16;
  return w.panels.form.is_dense() ? x.wants().numbers : x.wants().code_bits != 0;
}

// Checks the products and returns their panels.
int64_t count_panels(const PanelInputs& x, std::span<const PanelProduct> products) {
  int64_t panels = 0;
  for (const PanelProduct& each : products) {
    check<ShapeError>(each.w.in_features() == x.in_features(), "quant.multiply: rows of ",
                      x.in_features(), ", expected ", each.w.in_features());
    check<ShapeError>(serves(x, each.w), "quant.multiply: rows without ",
                      each.w.panels.form.is_dense() ? "numbers" : "codes",
                      ", expected them; say so in PanelInputs::Wants");
    panels += each.w.num_panels;
  }
  return panels;
}

// Panels [first, first + count) of plain numbers.
void multiply_plain(const kernels::PanelKernel& kernel, const PanelInputs& x,
                    const kernels::Panels& w, int64_t first, int64_t count,
                    const kernels::PanelOutputs& y) {
  if (x.is_bfloat16() && w.form.numbers == PanelNumbers::kBFloat16) {
    return kernel.multiply_bfloat16(w, first, count, x.bfloat16(), y);
  }
  kernel.multiply_dense(w, first, count, x.numbers(), y);
}

// Panel `index` as one of bfloat16.
void unpack(const kernels::PanelKernel& kernel, const PanelView& w, int64_t index, uint16_t* to) {
  if (w.short_numbers != nullptr) return w.short_numbers->read(kernel, w.panels, index, to);
  kernel.unpack_codes(w.panels, index, to);
}

// Panels [first, first + count) that become bfloat16 in the cache, a few at a time.
void multiply_unpacked(const kernels::PanelKernel& kernel, const PanelInputs& x, const PanelView& w,
                       int64_t first, int64_t count, const kernels::PanelOutputs& y) {
  thread_local core::Scratch<uint16_t> memory;
  const int64_t numbers = kPanelRows * w.in_features();
  const int64_t most = x.is_bfloat16() ? kernel.bfloat16_panels : 1;
  uint16_t* const unpacked = memory.make_room(most * numbers);
  kernels::Panels whole;
  whole.data = reinterpret_cast<const uint8_t*>(unpacked);
  whole.form.numbers = PanelNumbers::kBFloat16;
  whole.num_blocks = w.panels.num_blocks;
  for (int64_t i = 0; i < count; i += most) {
    const int64_t some = std::min(most, count - i);
    for (int64_t p = 0; p < some; ++p) {
      unpack(kernel, w, first + i + p, unpacked + p * numbers);
    }
    multiply_plain(kernel, x, whole, 0, some, {y.data + i * kPanelRows, y.stride});
  }
}

// The same of numbers of 12 bits, which few tokens are multiplied by as they are.
void multiply_short(const kernels::PanelKernel& kernel, const PanelInputs& x, const PanelView& w,
                    int64_t first, int64_t count, const kernels::PanelOutputs& y) {
  if (!x.is_exact()) return multiply_unpacked(kernel, x, w, first, count, y);
  kernel.multiply_dense(w.panels, first, count, x.numbers(), y);
  w.short_numbers->add_exceptions(first, count, x.numbers(), y);
}

// Panels [first, first + count) of a product.
void multiply_panels(const kernels::PanelKernel& kernel, const PanelInputs& x,
                     const PanelProduct& product, int64_t first, int64_t count) {
  const PanelView& w = product.w;
  const kernels::PanelOutputs y{product.y + first * kPanelRows, product.stride};
  if (w.short_numbers != nullptr) return multiply_short(kernel, x, w, first, count, y);
  if (w.panels.form.is_dense()) return multiply_plain(kernel, x, w.panels, first, count, y);
  if (!x.has_codes()) return multiply_unpacked(kernel, x, w, first, count, y);
  kernel.multiply(w.panels, first, count, x.codes(), y);
}

}  // namespace

PanelInputs::Wants PanelInputs::Wants::of(const PanelMatrix& w) {
  if (!w.form.is_dense()) return {w.activation_bits, false, false};
  const bool is_bfloat16 = quant::is_bfloat16(PanelView(w));
  return {0, !is_bfloat16, is_bfloat16};
}

PanelInputs::Wants PanelInputs::Wants::operator|(const Wants& other) const {
  return {std::max(code_bits, other.code_bits), numbers || other.numbers,
          bfloat16 || other.bfloat16};
}

void PanelInputs::take_row(const kernels::PanelKernel& kernel, const float* x, int64_t row) {
  if (has_numbers()) std::copy_n(x, in_, numbers_.data() + row * in_);
  const int64_t blocks = in_ / kBlockColumns;
  if (is_bfloat16_) {
    const Place at(row, rows_, blocks, kernel.bfloat16_tile);
    kernel.round_bfloat16(x, blocks, bfloat16_.data() + at.first * kBlockColumns, at.stride);
  }
  if (!has_codes_) return;
  const Place at(row, rows_, blocks, kernels::kTileTokens);
  int8_t* const lower =
      wants_.code_bits == 16 ? lower_codes_.data() + at.first * kBlockColumns : nullptr;
  kernel.round(x, blocks,
               {codes_.data() + at.first * kBlockColumns, lower, scales_.data() + at.first,
                sums_.data() + 2 * at.first, at.stride});
}

void PanelInputs::take(const kernels::PanelKernel& kernel, const Shape& shape, RowSource row_of) {
  take_part(kernel, shape, 0, shape.rows, row_of);
}

void PanelInputs::take_part(const kernels::PanelKernel& kernel, const Shape& shape, int64_t first,
                            int64_t count, RowSource row_of) {
  check<ShapeError>(shape.in % kBlockColumns == 0, "quant.PanelInputs: rows of ", shape.in,
                    ", expected whole blocks of ", kBlockColumns);
  check<ShapeError>(kRowRun % kernel.bfloat16_tile == 0 && first % kRowRun == 0,
                    "quant.PanelInputs: a part from row ", first, ", expected a multiple of ",
                    kRowRun);
  rows_ = shape.rows;
  in_ = shape.in;
  is_exact_ = shape.tokens <= kExactRows;
  make_room(kernel, std::max(shape.room, shape.rows));
  const int64_t grain = rows_per_thread(4 * in_);
  at::parallel_for(first, first + count, grain, [&](int64_t begin, int64_t end) {
    thread_local core::Scratch<float> memory;
    float* const room = memory.make_room(in_);
    for (int64_t row = begin; row < end; ++row) take_row(kernel, row_of(row, room), row);
  });
}

std::vector<PanelInputs::Memory> PanelInputs::memory() const {
  const int64_t blocks = in_ / kBlockColumns;
  std::vector<Memory> all;
  const auto add = [&](const auto& scratch, int64_t numbers) {
    const auto bytes = static_cast<int64_t>(sizeof(*scratch.data()));
    all.push_back({reinterpret_cast<std::byte*>(scratch.data()), numbers * bytes});
  };
  if (is_bfloat16_) add(bfloat16_, in_);
  if (has_numbers()) add(numbers_, in_);
  if (!has_codes_) return all;
  add(codes_, in_);
  if (wants_.code_bits == 16) add(lower_codes_, in_);
  add(scales_, blocks);
  add(sums_, 2 * blocks);
  return all;
}

// Puts the rows into the forms that the kernel needs.
void PanelInputs::make_room(const kernels::PanelKernel& kernel, int64_t rows) {
  const bool rounds = !is_exact_ && kernel.multiply_bfloat16 != nullptr;
  const bool rounds_codes = rounds && wants_.code_bits != 0 && kernel.unpack_codes != nullptr;
  is_bfloat16_ = (rounds && wants_.bfloat16) || rounds_codes;
  has_codes_ = wants_.code_bits != 0 && !rounds_codes;
  const int64_t numbers = rows * in_, blocks = numbers / kBlockColumns;
  if (is_bfloat16_) bfloat16_.make_room(numbers);
  if (has_numbers()) numbers_.make_room(numbers);
  if (!has_codes_) return;
  codes_.make_room(numbers);
  if (wants_.code_bits == 16) lower_codes_.make_room(numbers);
  scales_.make_room(blocks);
  sums_.make_room(2 * blocks);
}

void multiply(const kernels::PanelKernel& kernel, const PanelInputs& x,
              std::span<const PanelProduct> products) {
  const int64_t grain =
      rows_per_thread(kPanelRows * x.in_features() * std::max<int64_t>(1, x.num_rows()));
  at::parallel_for(0, count_panels(x, products), grain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const PanelProduct& each : products) {
      const int64_t count = each.w.num_panels;
      const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, count);
      first += count;
      if (from >= to) continue;
      multiply_panels(kernel, x, each, from, to - from);
    }
  });
}

at::Tensor panel_matmul_on(const kernels::PanelKernel& kernel, const at::Tensor& x,
                           const PanelMatrix& w) {
  check<ShapeError>(x.defined() && x.dim() > 0 && x.size(-1) == w.in_features,
                    "quant.panel_matmul: x, expected last dimension ", w.in_features, ", got ",
                    x.defined() ? core::list_text(x.sizes()) : "none",
                    "; check which shard of the weight this is");
  auto shape = x.sizes().vec();
  shape.back() = w.out_features;
  const PanelView view(w);
  const int64_t rows = x.numel() / w.in_features, stride = view.padded_out();
  const at::Tensor wide = x.detach().to(at::kFloat).contiguous();
  PanelInputs inputs(PanelInputs::Wants::of(w));
  const auto* from = wide.const_data_ptr<float>();
  inputs.take(kernel, {rows, w.in_features, x.dim() > 1 ? x.size(-2) : 1},
              [&](int64_t row, float* /*room*/) { return from + row * w.in_features; });
  at::Tensor y = at::empty({rows, stride});
  const PanelProduct product{view, y.mutable_data_ptr<float>(), stride};
  multiply(kernel, inputs, std::span(&product, 1));
  return y.narrow(1, 0, w.out_features).reshape(shape).to(x.scalar_type());
}

at::Tensor panel_matmul(const at::Tensor& x, const PanelMatrix& w) {
  return panel_matmul_on(kernels::active_panel_kernel(), x, w);
}

}  // namespace weft::quant
