#include "weft/quant/panel_matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::Panels;

int64_t num_panels(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

Panels view_of(const PanelMatrix& w) {
  return {w.data.const_data_ptr<uint8_t>(), w.bits, w.is_symmetric, w.in_features / kBlockColumns};
}

// A block's codes of one row, column after column.
using RowCodes = std::array<uint8_t, kBlockColumns>;

// The steps of four columns that share a byte with 4 bits.
constexpr int64_t kHalf = kBlockColumns / 2;

RowCodes read_affine(const uint8_t* packed, int64_t bits) {
  RowCodes codes;
  if (bits == 8) {
    std::copy_n(packed, kBlockColumns, codes.begin());
    return codes;
  }
  for (size_t i = 0; i < kHalf; ++i) {
    codes[2 * i] = packed[i] & 15;
    codes[2 * i + 1] = packed[i] >> 4;
  }
  return codes;
}

void write_affine(const RowCodes& codes, int64_t bits, uint8_t* packed) {
  if (bits == 8) {
    std::copy(codes.begin(), codes.end(), packed);
    return;
  }
  for (size_t i = 0; i < kHalf; ++i) {
    packed[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

// `steps`: a block's codes from row `row` of the panel on.
RowCodes read_steps(const uint8_t* steps, int64_t bits) {
  RowCodes codes;
  for (int64_t i = 0; i < (bits == 8 ? kBlockColumns : kHalf); ++i) {
    const uint8_t byte = steps[i / 4 * 4 * kPanelRows + i % 4];
    codes[static_cast<size_t>(i)] = bits == 8 ? byte : byte & 15;
    if (bits == 4) codes[static_cast<size_t>(i + kHalf)] = byte >> 4;
  }
  return codes;
}

void write_steps(const RowCodes& codes, int64_t bits, uint8_t* steps) {
  if (bits == 8) {
    for (int64_t i = 0; i < kBlockColumns; i += 4) {
      std::memcpy(steps + i * kPanelRows, codes.data() + i, 4);
    }
    return;
  }
  for (int64_t i = 0; i < kHalf; ++i) {
    const auto at = static_cast<size_t>(i);
    steps[i / 4 * 4 * kPanelRows + i % 4] =
        static_cast<uint8_t>(codes[at] | codes[at + kHalf] << 4);
  }
}

// Where a block has row `row`'s scale, offset and codes.
struct BlockRow {
  BlockRow(const Panels& w, int64_t row)
      : scale(2 * row),
        offset(2 * (kPanelRows + row)),
        codes(kPanelRows * (w.is_symmetric ? 2 : 4) + 4 * row) {}
  int64_t scale, offset, codes;
};

constexpr size_t kHalfBytes = sizeof(at::Half);

// All blocks of one row of w.
void fill_row(const AffineTensor& w, const Panels& panels, int64_t row, uint8_t* panel) {
  const BlockRow at(panels, row % kPanelRows);
  const int64_t groups = w.scales.size(1), bytes = kBlockColumns * w.bits / 8;
  const auto* scales = w.scales.const_data_ptr<at::Half>() + row * groups;
  const auto* offsets =
      w.is_symmetric() ? nullptr : w.offsets.const_data_ptr<at::Half>() + row * groups;
  const uint8_t* packed = w.packed.const_data_ptr<uint8_t>() + row * w.packed.size(1);
  for (int64_t b = 0; b < panels.num_blocks; ++b) {
    uint8_t* block = panel + b * panels.block_bytes();
    const int64_t group = b * kBlockColumns / w.group_size;
    std::memcpy(block + at.scale, scales + group, kHalfBytes);
    if (offsets != nullptr) std::memcpy(block + at.offset, offsets + group, kHalfBytes);
    write_steps(read_affine(packed + b * bytes, w.bits), w.bits, block + at.codes);
  }
}

// The inverse, with groups of a block.
void take_row(const Panels& panels, const uint8_t* panel, int64_t row, AffineTensor& w) {
  const BlockRow at(panels, row % kPanelRows);
  const int64_t bytes = kBlockColumns * w.bits / 8;
  auto* scales = w.scales.mutable_data_ptr<at::Half>() + row * panels.num_blocks;
  auto* offsets = panels.is_symmetric
                      ? nullptr
                      : w.offsets.mutable_data_ptr<at::Half>() + row * panels.num_blocks;
  uint8_t* packed = w.packed.mutable_data_ptr<uint8_t>() + row * w.packed.size(1);
  for (int64_t b = 0; b < panels.num_blocks; ++b) {
    const uint8_t* block = panel + b * panels.block_bytes();
    std::memcpy(scales + b, block + at.scale, kHalfBytes);
    if (offsets != nullptr) std::memcpy(offsets + b, block + at.offset, kHalfBytes);
    write_affine(read_steps(block + at.codes, w.bits), w.bits, packed + b * bytes);
  }
}

}  // namespace

bool fits_panels(const AffineTensor& w) {
  return (w.bits == 4 || w.bits == 8) && w.group_size % kBlockColumns == 0 &&
         w.scales.scalar_type() == at::kHalf &&
         (w.is_symmetric() || w.offsets.scalar_type() == at::kHalf);
}

PanelMatrix to_panels(const AffineTensor& w, int64_t activation_bits) {
  check_affine(w, "quant.to_panels");
  check<ShapeError>(fits_panels(w), "quant.to_panels: ", w.bits, " bits in groups of ",
                    w.group_size, ", expected 4 or 8 bits, groups of whole blocks of ",
                    kBlockColumns, " and scales of float16; keep it as it is");
  check<ShapeError>(activation_bits == 8 || activation_bits == 16,
                    "quant.to_panels: activations of ", activation_bits, " bits, expected 8 or 16");
  PanelMatrix made;
  made.activation_bits = activation_bits;
  made.out_features = w.out_features();
  made.in_features = w.in_features();
  made.bits = w.bits;
  made.is_symmetric = w.is_symmetric();
  Panels panels{nullptr, w.bits, w.is_symmetric(), w.in_features() / kBlockColumns};
  const int64_t count = num_panels(w.out_features());
  made.data = large_tensor({count * panels.panel_bytes()}, at::kByte);
  auto* data = made.data.mutable_data_ptr<uint8_t>();
  // The last panel's rows beyond w are zeros.
  std::memset(data + (count - 1) * panels.panel_bytes(), 0,
              static_cast<size_t>(panels.panel_bytes()));
  at::parallel_for(0, count, rows_per_thread(kPanelRows * w.in_features()),
                   [&](int64_t begin, int64_t end) {
                     const int64_t last = std::min(end * kPanelRows, w.out_features());
                     for (int64_t row = begin * kPanelRows; row < last; ++row) {
                       fill_row(w, panels, row, data + row / kPanelRows * panels.panel_bytes());
                     }
                   });
  return made;
}

AffineTensor from_panels(const PanelMatrix& w) {
  const Panels panels = view_of(w);
  AffineTensor made;
  made.bits = w.bits;
  made.group_size = kBlockColumns;
  made.packed = at::empty({w.out_features, w.in_features * w.bits / 8}, at::kByte);
  made.scales = at::empty({w.out_features, panels.num_blocks}, at::kHalf);
  if (!w.is_symmetric) made.offsets = at::empty_like(made.scales);
  for (int64_t row = 0; row < w.out_features; ++row) {
    take_row(panels, panels.data + row / kPanelRows * panels.panel_bytes(), row, made);
  }
  return made;
}

at::Tensor panel_rows(const PanelMatrix& w, const at::Tensor& indices) {
  const at::Tensor flat = indices.reshape({-1});
  at::Tensor rows = at::empty({flat.numel(), w.in_features});
  const Panels panels = view_of(w);
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t row = flat[i].item<int64_t>();
    check<ShapeError>(row >= 0 && row < w.out_features, "quant.panel_rows: row ", row,
                      ", expected 0 to ", w.out_features - 1);
    PanelMatrix panel = w;
    panel.out_features = kPanelRows;
    panel.data = w.data.narrow(0, row / kPanelRows * panels.panel_bytes(), panels.panel_bytes());
    rows[i].copy_(affine_rows(from_panels(panel), at::full({}, row % kPanelRows, at::kLong)));
  }
  auto shape = indices.sizes().vec();
  shape.push_back(w.in_features);
  return rows.view(shape);
}

void RoundedRows::round(const kernels::PanelKernel& kernel, const float* x, int64_t rows,
                        int64_t in, int64_t stride) {
  check<ShapeError>(in % kBlockColumns == 0, "quant.RoundedRows: rows of ", in,
                    ", expected whole blocks of ", kBlockColumns);
  const int64_t blocks = in / kBlockColumns;
  rows_ = rows;
  in_ = in;
  codes_.resize(std::max(codes_.size(), static_cast<size_t>(rows * in)));
  if (bits_ == 16) lower_codes_.resize(codes_.size());
  scales_.resize(std::max(scales_.size(), static_cast<size_t>(rows * blocks)));
  sums_.resize(scales_.size());
  at::parallel_for(0, rows, rows_per_thread(4 * in), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t tile = t / kernels::kTileTokens * kernels::kTileTokens;
      const int64_t first = tile * blocks + t - tile;
      int8_t* const lower = bits_ == 16 ? lower_codes_.data() + first * kBlockColumns : nullptr;
      kernel.round(x + t * stride, blocks,
                   {codes_.data() + first * kBlockColumns, lower, scales_.data() + first,
                    sums_.data() + first, view().tile_tokens(tile)});
    }
  });
}

int64_t padded_out(const PanelMatrix& w) { return num_panels(w.out_features) * kPanelRows; }

void multiply(const kernels::PanelKernel& kernel, const RoundedRows& x,
              std::span<const PanelProduct> products) {
  int64_t panels = 0;
  for (const PanelProduct& each : products) {
    check<ShapeError>(each.w->in_features == x.in_features(), "quant.multiply: rows of ",
                      x.in_features(), ", expected ", each.w->in_features);
    panels += num_panels(each.w->out_features);
  }
  const kernels::RoundedInputs rows = x.view();
  const int64_t grain =
      rows_per_thread(kPanelRows * x.in_features() * std::max<int64_t>(1, rows.tokens));
  at::parallel_for(0, panels, grain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const PanelProduct& each : products) {
      const int64_t count = num_panels(each.w->out_features);
      const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, count);
      first += count;
      if (from >= to) continue;
      kernel.multiply(view_of(*each.w), from, to - from, rows,
                      {each.y + from * kPanelRows, each.stride});
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
  const int64_t tokens = x.numel() / w.in_features, stride = padded_out(w);
  const at::Tensor wide = x.detach().to(at::kFloat).contiguous();
  RoundedRows rounded(w.activation_bits);
  rounded.round(kernel, wide.const_data_ptr<float>(), tokens, w.in_features, w.in_features);
  at::Tensor y = at::empty({tokens, stride});
  const PanelProduct product{&w, y.mutable_data_ptr<float>(), stride};
  multiply(kernel, rounded, std::span(&product, 1));
  return y.narrow(1, 0, w.out_features).reshape(shape).to(x.scalar_type());
}

at::Tensor panel_matmul(const at::Tensor& x, const PanelMatrix& w) {
  return panel_matmul_on(kernels::active_panel_kernel(), x, w);
}

}  // namespace weft::quant
