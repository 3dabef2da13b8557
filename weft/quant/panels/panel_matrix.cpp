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

bool is_bfloat16(const PanelView& w) {
  return w.panels.form.numbers == PanelNumbers::kBFloat16 || w.short_numbers != nullptr;
}

bool serves(const PanelInputs& x, const PanelView& w) {
  if (is_bfloat16(w)) return x.wants().bfloat16;
  return w.panels.form.is_dense() ? x.wants().numbers : x.wants().code_bits != 0;
}

// A group of rows, which products take as the matrix's form wants them.
struct ProductRows {
  const PanelInputs& x;
  int64_t group;
};

// Checks the products and returns their panels, each as often as it is multiplied by a row.
int64_t count_work(const PanelInputs& x, std::span<const PanelProduct> products) {
  int64_t work = 0;
  for (const PanelProduct& each : products) {
    check<ShapeError>(each.w.in_features() == x.in_features(), "quant.multiply: rows of ",
                      x.in_features(), ", expected ", each.w.in_features());
    check<ShapeError>(serves(x, each.w), "quant.multiply: rows without ",
                      each.w.panels.form.is_dense() ? "numbers" : "codes",
                      ", expected them; say so in PanelInputs::Wants");
    work += each.w.num_panels * x.num_rows(each.group);
  }
  return work;
}

// Panels [first, first + count) of plain numbers.
void multiply_plain(const kernels::PanelKernel& kernel, const ProductRows& rows,
                    const kernels::Panels& w, int64_t first, int64_t count,
                    const kernels::PanelOutputs& y) {
  if (rows.x.is_bfloat16() && w.form.numbers == PanelNumbers::kBFloat16) {
    return kernel.multiply_bfloat16(w, first, count, rows.x.bfloat16(rows.group), y);
  }
  kernel.multiply_dense(w, first, count, rows.x.numbers(rows.group), y);
}

// Panel `index` as one of bfloat16.
void unpack(const kernels::PanelKernel& kernel, const PanelView& w, int64_t index,
            const kernels::BFloat16Parts& to) {
  if (w.short_numbers != nullptr) return w.short_numbers->read(kernel, w.panels, index, to.high);
  kernel.unpack_codes(w.panels, index, to);
}

// Panels [first, first + count) that become bfloat16 in the cache, a few at a time.
void multiply_unpacked(const kernels::PanelKernel& kernel, const ProductRows& rows,
                       const PanelView& w, int64_t first, int64_t count,
                       const kernels::PanelOutputs& y) {
  thread_local core::Scratch<uint16_t> memory;
  const int64_t numbers = kPanelRows * w.in_features();
  const int64_t most = rows.x.is_bfloat16() ? kernel.bfloat16_panels : 1;
  // Numbers of 12 bits are bfloat16 exactly.
  const bool has_low = rows.x.wants().both_parts && w.short_numbers == nullptr;
  uint16_t* const unpacked = memory.make_room((has_low ? 2 : 1) * most * numbers);
  uint16_t* const low = has_low ? unpacked + most * numbers : nullptr;
  kernels::Panels whole;
  whole.low = reinterpret_cast<const uint8_t*>(low);
  whole.data = reinterpret_cast<const uint8_t*>(unpacked);
  whole.form.numbers = PanelNumbers::kBFloat16;
  whole.num_blocks = w.panels.num_blocks;
  for (int64_t i = 0; i < count; i += most) {
    const int64_t some = std::min(most, count - i);
    for (int64_t p = 0; p < some; ++p) {
      unpack(kernel, w, first + i + p,
             {unpacked + p * numbers, has_low ? low + p * numbers : nullptr});
    }
    multiply_plain(kernel, rows, whole, 0, some, {y.data + i * kPanelRows, y.stride});
  }
}

// The same of numbers of 12 bits, which few tokens are multiplied by as they are.
void multiply_short(const kernels::PanelKernel& kernel, const ProductRows& rows, const PanelView& w,
                    int64_t first, int64_t count, const kernels::PanelOutputs& y) {
  if (!rows.x.is_exact()) return multiply_unpacked(kernel, rows, w, first, count, y);
  const kernels::DenseInputs numbers = rows.x.numbers(rows.group);
  kernel.multiply_dense(w.panels, first, count, numbers, y);
  w.short_numbers->add_exceptions(first, count, numbers, y);
}

// Panels [own, own + count) of a product.
void multiply_panels(const kernels::PanelKernel& kernel, const PanelInputs& x,
                     const PanelProduct& product, int64_t own, int64_t count) {
  const PanelView& w = product.w;
  const ProductRows rows{x, product.group};
  const kernels::PanelOutputs y{product.y + own * kPanelRows, product.stride};
  const int64_t first = w.first_panel + own;
  if (w.short_numbers != nullptr) return multiply_short(kernel, rows, w, first, count, y);
  if (w.panels.form.is_dense()) return multiply_plain(kernel, rows, w.panels, first, count, y);
  if (!x.has_codes()) return multiply_unpacked(kernel, rows, w, first, count, y);
  kernel.multiply(w.panels, first, count, x.codes(product.group), y);
}

}  // namespace

PanelInputs::Wants PanelInputs::Wants::of(const PanelMatrix& w) {
  const bool both_parts = w.activation_bits != 8;
  if (!w.form.is_dense()) return {w.activation_bits, false, false, both_parts, w.is_exact};
  const bool is_bfloat16 = quant::is_bfloat16(PanelView(w));
  return {0, !is_bfloat16, is_bfloat16, is_bfloat16 && both_parts, w.is_exact};
}

PanelInputs::Wants PanelInputs::Wants::operator|(const Wants& other) const {
  return {std::max(code_bits, other.code_bits), numbers || other.numbers,
          bfloat16 || other.bfloat16, both_parts || other.both_parts, exact || other.exact};
}

kernels::RoundedInputs PanelInputs::codes(int64_t group) const {
  const int64_t first = start_of(group), blocks = in_ / kBlockColumns;
  int8_t* const lower = wants_.code_bits == 16 ? lower_codes_.data() + first * in_ : nullptr;
  return {codes_.data() + first * in_, lower, scales_.data() + first * blocks,
          sums_.data() + 2 * first * blocks, num_rows(group)};
}

// Each group's tiles begin with its first row.
PanelInputs::Place PanelInputs::place_of(int64_t row, int64_t tile) const {
  const auto next = std::upper_bound(starts_.begin() + 1, starts_.end() - 1, row);
  const int64_t start = *(next - 1), rows = *next - start, own = row - start;
  const int64_t tile_start = own / tile * tile;
  return {(start + tile_start) * (in_ / kBlockColumns) + own % tile,
          std::min(tile, rows - tile_start)};
}

void PanelInputs::take_row(const kernels::PanelKernel& kernel, const float* x, int64_t row) {
  if (has_numbers()) std::copy_n(x, in_, numbers_.data() + row * in_);
  const int64_t blocks = in_ / kBlockColumns;
  if (is_bfloat16_) {
    const Place at = place_of(row, kernel.bfloat16_tile);
    const int64_t first = at.first * kBlockColumns;
    uint16_t* const low = wants_.both_parts ? bfloat16_low_.data() + first : nullptr;
    kernel.round_bfloat16(x, blocks, {bfloat16_.data() + first, low}, at.stride);
  }
  if (!has_codes_) return;
  const Place at = place_of(row, kernels::kTileTokens);
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
  set_groups(shape.rows, shape.starts);
  in_ = shape.in;
  is_exact_ = wants_.exact || shape.tokens <= kExactRows;
  make_room(kernel, std::max(shape.room, shape.rows));
  const int64_t grain = rows_per_thread(4 * in_);
  at::parallel_for(first, first + count, grain, [&](int64_t begin, int64_t end) {
    thread_local core::Scratch<float> memory;
    float* const room = memory.make_room(in_);
    for (int64_t row = begin; row < end; ++row) take_row(kernel, row_of(row, room), row);
  });
}

void PanelInputs::set_groups(int64_t rows, std::span<const int64_t> starts) {
  rows_ = rows;
  starts_.assign(starts.begin(), starts.end());
  if (starts.empty()) starts_.push_back(0);
  starts_.push_back(rows);
}

bool PanelInputs::has_forms_of(const PanelInputs& other) const {
  return (has_codes_ || !other.has_codes_) && (is_bfloat16_ || !other.is_bfloat16_) &&
         (has_numbers() || !other.has_numbers()) &&
         (!other.is_bfloat16_ || wants_.both_parts || !other.wants_.both_parts) &&
         (!other.has_codes_ || wants_.code_bits == other.wants_.code_bits);
}

void PanelInputs::take_rows(const kernels::PanelKernel& kernel, const PanelInputs& from,
                            std::span<const int64_t> rows, std::span<const int64_t> starts) {
  const auto count = static_cast<int64_t>(rows.size());
  set_groups(count, starts);
  in_ = from.in_;
  is_exact_ = from.is_exact_;
  make_room(kernel, count);
  check<ShapeError>(from.has_forms_of(*this) && from.starts_.size() == 2,
                    "quant.PanelInputs.take_rows: rows without forms that are wanted, or of ",
                    from.starts_.size() - 1, " groups, expected all forms and one group");
  at::parallel_for(0, count, rows_per_thread(in_), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from_row = rows[static_cast<size_t>(row)];
      check<ShapeError>(from_row >= 0 && from_row < from.rows_, "quant.PanelInputs.take_rows: row ",
                        from_row, ", expected 0 to ", from.rows_ - 1);
      copy_row(kernel, from, from_row, row);
    }
  });
}

void PanelInputs::copy_row(const kernels::PanelKernel& kernel, const PanelInputs& from,
                           int64_t from_row, int64_t row) {
  const int64_t blocks = in_ / kBlockColumns;
  const auto copy = [&]<int64_t kSize>(int64_t tile, const auto* source, auto* to) {
    const Place here = place_of(row, tile), there = from.place_of(from_row, tile);
    for (int64_t b = 0; b < blocks; ++b) {
      std::copy_n(source + (there.first + b * there.stride) * kSize, kSize,
                  to + (here.first + b * here.stride) * kSize);
    }
  };
  if (has_numbers()) {
    std::copy_n(from.numbers_.data() + from_row * in_, in_, numbers_.data() + row * in_);
  }
  if (is_bfloat16_) {
    const int64_t tile = kernel.bfloat16_tile;
    copy.template operator()<kBlockColumns>(tile, from.bfloat16_.data(), bfloat16_.data());
    if (wants_.both_parts) {
      copy.template operator()<kBlockColumns>(tile, from.bfloat16_low_.data(),
                                              bfloat16_low_.data());
    }
  }
  if (!has_codes_) return;
  constexpr int64_t kTile = kernels::kTileTokens;
  copy.template operator()<kBlockColumns>(kTile, from.codes_.data(), codes_.data());
  if (wants_.code_bits == 16) {
    copy.template operator()<kBlockColumns>(kTile, from.lower_codes_.data(), lower_codes_.data());
  }
  copy.template operator()<1>(kTile, from.scales_.data(), scales_.data());
  copy.template operator()<2>(kTile, from.sums_.data(), sums_.data());
}

std::vector<PanelInputs::Memory> PanelInputs::memory() const {
  const int64_t blocks = in_ / kBlockColumns;
  std::vector<Memory> all;
  const auto add = [&](const auto& scratch, int64_t numbers) {
    const auto bytes = static_cast<int64_t>(sizeof(*scratch.data()));
    all.push_back({reinterpret_cast<std::byte*>(scratch.data()), numbers * bytes});
  };
  if (is_bfloat16_) add(bfloat16_, in_);
  if (is_bfloat16_ && wants_.both_parts) add(bfloat16_low_, in_);
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
  if (is_bfloat16_ && wants_.both_parts) bfloat16_low_.make_room(numbers);
  if (has_numbers()) numbers_.make_room(numbers);
  if (!has_codes_) return;
  codes_.make_room(numbers);
  if (wants_.code_bits == 16) lower_codes_.make_room(numbers);
  scales_.make_room(blocks);
  sums_.make_room(2 * blocks);
}

// A panel is multiplied by the thread that the work of its first row falls to.
void multiply(const kernels::PanelKernel& kernel, const PanelInputs& x,
              std::span<const PanelProduct> products) {
  const int64_t grain = rows_per_thread(kPanelRows * x.in_features());
  at::parallel_for(0, count_work(x, products), grain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const PanelProduct& each : products) {
      const int64_t count = each.w.num_panels, rows = x.num_rows(each.group);
      if (rows == 0) continue;
      const auto panel_at = [&](int64_t work) {
        return std::clamp((work - first + rows - 1) / rows, int64_t{0}, count);
      };
      const int64_t from = panel_at(begin), to = panel_at(end);
      first += count * rows;
      if (from < to) multiply_panels(kernel, x, each, from, to - from);
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
