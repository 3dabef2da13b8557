#include "weft/quant/panel_matrix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/kernels/panel_select.h"
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

// Where a block keeps the code of (row, column), and whether in a byte's upper half.
struct CodePlace {
  int64_t byte;
  bool is_upper;
};
CodePlace place_of(const Panels& w, int64_t row, int64_t column) {
  const int64_t head = kPanelRows * (w.is_symmetric ? 2 : 4);
  const int64_t step = column / 4, within = 4 * row + column % 4;
  if (w.bits == 8) return {head + 4 * kPanelRows * step + within, false};
  return {head + 4 * kPanelRows * (step % 4) + within, step >= 4};
}

// Elements of a row of w as bytes.
uint8_t code_of(const AffineTensor& w, int64_t row, int64_t column) {
  const uint8_t* codes = w.packed.const_data_ptr<uint8_t>() + row * w.packed.size(1);
  if (w.bits == 8) return codes[column];
  return column % 2 == 0 ? codes[column / 2] & 15 : codes[column / 2] >> 4;
}

void copy_half(const at::Tensor& halves, int64_t row, int64_t group, uint8_t* to) {
  const auto* from = halves.const_data_ptr<at::Half>() + row * halves.size(1) + group;
  std::memcpy(to, from, sizeof(*from));
}

void fill_block(const AffineTensor& w, const Panels& panels, int64_t panel, int64_t block,
                uint8_t* to) {
  const int64_t first = panel * kPanelRows;
  const int64_t rows = std::min(kPanelRows, w.out_features() - first);
  const int64_t group = block * kBlockColumns / w.group_size;
  for (int64_t r = 0; r < rows; ++r) {
    copy_half(w.scales, first + r, group, to + 2 * r);
    if (!w.is_symmetric()) copy_half(w.offsets, first + r, group, to + 2 * (kPanelRows + r));
    for (int64_t c = 0; c < kBlockColumns; ++c) {
      const CodePlace place = place_of(panels, r, c);
      const uint8_t code = code_of(w, first + r, block * kBlockColumns + c);
      to[place.byte] |= static_cast<uint8_t>(place.is_upper ? code << 4 : code);
    }
  }
}

// Tokens as codes of 8 bits.
class Rounded {
 public:
  Rounded(const kernels::PanelKernel& kernel, const float* x, int64_t tokens, int64_t in)
      : codes_(static_cast<size_t>(tokens * in)),
        scales_(static_cast<size_t>(tokens * in / kBlockColumns)),
        sums_(scales_.size()),
        tokens_(tokens) {
    const int64_t blocks = in / kBlockColumns;
    at::parallel_for(0, tokens, rows_per_thread(4 * in), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        kernel.round(x + t * in, blocks, codes_.data() + t * in, scales_.data() + t * blocks,
                     sums_.data() + t * blocks);
      }
    });
  }

  kernels::RoundedInputs view() const {
    return {codes_.data(), scales_.data(), sums_.data(), tokens_};
  }

 private:
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  int64_t tokens_;
};

}  // namespace

bool fits_panels(const AffineTensor& w) {
  return (w.bits == 4 || w.bits == 8) && w.group_size % kBlockColumns == 0 &&
         w.scales.scalar_type() == at::kHalf &&
         (w.is_symmetric() || w.offsets.scalar_type() == at::kHalf);
}

PanelMatrix to_panels(const AffineTensor& w) {
  check_affine(w, "quant.to_panels");
  check<ShapeError>(fits_panels(w), "quant.to_panels: ", w.bits, " bits in groups of ",
                    w.group_size, ", expected 4 or 8 bits, groups of whole blocks of ",
                    kBlockColumns, " and scales of float16; keep it as it is");
  PanelMatrix made;
  made.out_features = w.out_features();
  made.in_features = w.in_features();
  made.bits = w.bits;
  made.is_symmetric = w.is_symmetric();
  Panels panels{nullptr, w.bits, w.is_symmetric(), w.in_features() / kBlockColumns};
  const int64_t count = num_panels(w.out_features());
  made.data = at::zeros({count * panels.panel_bytes()}, at::kByte);
  auto* data = made.data.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, count, rows_per_thread(kPanelRows * w.in_features()),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin * panels.num_blocks; i < end * panels.num_blocks; ++i) {
                       fill_block(w, panels, i / panels.num_blocks, i % panels.num_blocks,
                                  data + i * panels.block_bytes());
                     }
                   });
  return made;
}

AffineTensor from_panels(const PanelMatrix& w) {
  const Panels panels = view_of(w);
  AffineTensor made;
  made.bits = w.bits;
  made.group_size = kBlockColumns;
  made.packed = at::zeros({w.out_features, w.in_features * w.bits / 8}, at::kByte);
  made.scales = at::empty({w.out_features, panels.num_blocks}, at::kHalf);
  if (!w.is_symmetric) made.offsets = at::empty_like(made.scales);
  auto* codes = made.packed.mutable_data_ptr<uint8_t>();
  for (int64_t row = 0; row < w.out_features; ++row) {
    for (int64_t b = 0; b < panels.num_blocks; ++b) {
      const uint8_t* block =
          panels.data + row / kPanelRows * panels.panel_bytes() + b * panels.block_bytes();
      const int64_t r = row % kPanelRows, group = row * panels.num_blocks + b;
      std::memcpy(made.scales.mutable_data_ptr<at::Half>() + group, block + 2 * r, 2);
      if (!w.is_symmetric) {
        std::memcpy(made.offsets.mutable_data_ptr<at::Half>() + group, block + 2 * (kPanelRows + r),
                    2);
      }
      for (int64_t c = 0; c < kBlockColumns; ++c) {
        const CodePlace place = place_of(panels, r, c);
        const int code =
            place.is_upper ? block[place.byte] >> 4 : block[place.byte] & ((1 << w.bits) - 1);
        const int64_t element = row * w.in_features + b * kBlockColumns + c;
        codes[element * w.bits / 8] |=
            static_cast<uint8_t>(w.bits == 4 && element % 2 == 1 ? code << 4 : code);
      }
    }
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

at::Tensor panel_matmul_on(const kernels::PanelKernel& kernel, const at::Tensor& x,
                           const PanelMatrix& w) {
  check<ShapeError>(x.defined() && x.dim() > 0 && x.size(-1) == w.in_features,
                    "quant.panel_matmul: x, expected last dimension ", w.in_features, ", got ",
                    x.defined() ? core::list_text(x.sizes()) : "none",
                    "; check which shard of the weight this is");
  auto shape = x.sizes().vec();
  shape.back() = w.out_features;
  const int64_t tokens = x.numel() / w.in_features;
  const int64_t panels = num_panels(w.out_features), stride = panels * kPanelRows;
  const at::Tensor wide = x.detach().to(at::kFloat).contiguous();
  const Rounded rounded(kernel, wide.const_data_ptr<float>(), tokens, w.in_features);
  at::Tensor y = at::empty({tokens, stride});
  auto* data = y.mutable_data_ptr<float>();
  const int64_t grain = rows_per_thread(kPanelRows * w.in_features * std::max<int64_t>(1, tokens));
  at::parallel_for(0, panels, grain, [&](int64_t begin, int64_t end) {
    kernel.multiply(view_of(w), begin, end - begin, rounded.view(),
                    {data + begin * kPanelRows, stride});
  });
  return y.narrow(1, 0, w.out_features).reshape(shape).to(x.scalar_type());
}

at::Tensor panel_matmul(const at::Tensor& x, const PanelMatrix& w) {
  return panel_matmul_on(kernels::active_panel_kernel(), x, w);
}

}  // namespace weft::quant
