#include "weft/quant/panel_layout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::PanelForm;
using kernels::PanelNumbers;
using kernels::Panels;

int64_t num_panels(int64_t rows) { return (rows + kPanelRows - 1) / kPanelRows; }

// A block's codes of one row, column after column.
using RowCodes = std::array<uint8_t, kBlockColumns>;

// The steps of four columns that share a byte with 4 bits.
constexpr int64_t kHalf = kBlockColumns / 2;

// Codes of any bits: one stream, lowest bit first.
RowCodes read_stream(const uint8_t* packed, int64_t bits) {
  RowCodes codes;
  for (int64_t i = 0; i < kBlockColumns; ++i) {
    const int64_t first = i * bits, at = first / 8, shift = first % 8;
    int value = packed[at] >> shift;
    if (shift + bits > 8) value |= packed[at + 1] << (8 - shift);
    codes[static_cast<size_t>(i)] = static_cast<uint8_t>(value & ((1 << bits) - 1));
  }
  return codes;
}

RowCodes read_affine(const uint8_t* packed, int64_t bits) {
  RowCodes codes;
  if (bits == 8) {
    std::copy_n(packed, kBlockColumns, codes.begin());
    return codes;
  }
  if (bits != 4) return read_stream(packed, bits);
  for (size_t i = 0; i < kHalf; ++i) {
    codes[2 * i] = packed[i] & 15;
    codes[2 * i + 1] = packed[i] >> 4;
  }
  return codes;
}

// `steps`: a block's codes from row `row` of the panel on.
RowCodes read_steps(const uint8_t* steps, PanelNumbers numbers) {
  const bool is_4 = numbers == PanelNumbers::kCodes4;
  RowCodes codes;
  for (int64_t i = 0; i < (is_4 ? kHalf : kBlockColumns); ++i) {
    const uint8_t byte = steps[i / 4 * 4 * kPanelRows + i % 4];
    codes[static_cast<size_t>(i)] = is_4 ? byte & 15 : byte;
    if (is_4) codes[static_cast<size_t>(i + kHalf)] = byte >> 4;
  }
  return codes;
}

void write_steps(const RowCodes& codes, PanelNumbers numbers, uint8_t* steps) {
  if (numbers == PanelNumbers::kCodes8) {
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

// Where a block has row `row`'s first scale, first offset and codes.
struct BlockRow {
  BlockRow(const PanelForm& form, int64_t row)
      : scale_size(form.scale_bytes() / kPanelRows),
        scale(scale_size * row),
        offset(form.scale_bytes() + scale_size * row),
        codes(form.header_bytes() + 4 * row) {}
  int64_t scale_size, scale, offset, codes;
};

// Scales and offsets in the type that panels have them in.
struct Scales {
  at::Tensor scales, offsets;

  Scales(const AffineTensor& w, const PanelForm& form) {
    const auto type = form.has_float_scales ? at::kFloat : at::kHalf;
    scales = w.scales.to(type).contiguous();
    if (form.has_offsets) offsets = w.offsets.to(type).contiguous();
  }
};

const uint8_t* bytes_of(const at::Tensor& tensor) {
  return static_cast<const uint8_t*>(tensor.const_data_ptr());
}

// All blocks of one row of w.
void fill_row(const AffineTensor& w, const Scales& scales, const Panels& panels, int64_t row,
              uint8_t* panel) {
  const PanelForm& form = panels.form;
  const BlockRow at(form, row % kPanelRows);
  const auto size = static_cast<size_t>(at.scale_size);
  const int64_t bytes = kBlockColumns * w.bits / 8, group_bytes = form.header_bytes() / form.groups;
  const uint8_t* packed = w.packed.const_data_ptr<uint8_t>() + row * w.packed.size(1);
  for (int64_t b = 0; b < panels.num_blocks; ++b, panel += form.block_bytes()) {
    for (int64_t g = 0; g < form.groups; ++g) {
      const int64_t group = (b * kBlockColumns + g * kHalf) / w.group_size;
      const int64_t from = (row * w.scales.size(1) + group) * at.scale_size;
      uint8_t* header = panel + g * group_bytes;
      std::memcpy(header + at.scale, bytes_of(scales.scales) + from, size);
      if (form.has_offsets) {
        std::memcpy(header + at.offset, bytes_of(scales.offsets) + from, size);
      }
    }
    write_steps(read_affine(packed + b * bytes, w.bits), form.numbers, panel + at.codes);
  }
}

float scale_at(const PanelForm& form, const uint8_t* from) {
  if (form.has_float_scales) {
    float value = 0;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, from, sizeof(half));
  return at::Half(half, at::Half::from_bits());
}

void read_coded_row(const Panels& panels, const uint8_t* panel, int64_t row, float* to) {
  const PanelForm& form = panels.form;
  const BlockRow at(form, row);
  const int64_t group_bytes = form.header_bytes() / form.groups;
  const int64_t columns = kBlockColumns / form.groups;
  for (int64_t b = 0; b < panels.num_blocks; ++b, panel += form.block_bytes()) {
    const RowCodes codes = read_steps(panel + at.codes, form.numbers);
    for (int64_t i = 0; i < kBlockColumns; i += columns) {
      const uint8_t* header = panel + i / columns * group_bytes;
      const float scale = scale_at(form, header + at.scale);
      const float offset =
          form.has_offsets ? scale_at(form, header + at.offset) : -form.zero * scale;
      for (int64_t column = i; column < i + columns; ++column) {
        const float product = scale * static_cast<float>(codes[static_cast<size_t>(column)]);
        *to++ = product + offset;
      }
    }
  }
}

// Where a panel has a plain number.
int64_t place_of(const PanelForm& form, int64_t row, int64_t column) {
  if (form.numbers == PanelNumbers::kBFloat16) {
    return (column / 2 * kPanelRows + row) * 4 + column % 2 * 2;
  }
  return (column * kPanelRows + row) * form.bits() / 8;
}

void read_dense_row(const Panels& panels, const uint8_t* panel, int64_t row, float* to) {
  for (int64_t column = 0; column < panels.num_blocks * kBlockColumns; ++column) {
    const uint8_t* from = panel + place_of(panels.form, row, column);
    uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof(bits));
    switch (panels.form.numbers) {
      case PanelNumbers::kBFloat16:
        to[column] = at::BFloat16(bits, at::BFloat16::from_bits());
        break;
      case PanelNumbers::kFloat16:
        to[column] = at::Half(bits, at::Half::from_bits());
        break;
      default:
        std::memcpy(to + column, from, sizeof(float));
    }
  }
}

// The form's numbers one by one, so that a panel is written from its beginning to its end.
void fill_dense_panel(const at::Tensor& w, const PanelForm& form, int64_t first, uint8_t* panel) {
  const int64_t rows = std::min(kPanelRows, w.size(0) - first), size = form.bits() / 8;
  const int64_t row_bytes = w.size(1) * size;
  const uint8_t* from = bytes_of(w) + first * row_bytes;
  // Neighbours of a row that lie side by side in a panel, too.
  const int64_t run = form.numbers == PanelNumbers::kBFloat16 ? 2 : 1;
  for (int64_t column = 0; column < w.size(1); column += run) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(panel + place_of(form, row, column), from + row * row_bytes + column * size,
                  static_cast<size_t>(run * size));
    }
  }
}

PanelForm form_of(const AffineTensor& w) {
  PanelForm form;
  form.numbers = w.bits <= 4 ? PanelNumbers::kCodes4 : PanelNumbers::kCodes8;
  form.has_offsets = !w.is_symmetric();
  form.zero = static_cast<float>(int64_t{1} << (w.bits - 1));
  form.groups = w.group_size % kBlockColumns == 0 ? 1 : 2;
  form.has_float_scales = form.groups == 2 || w.scales.scalar_type() != at::kHalf ||
                          (form.has_offsets && w.offsets.scalar_type() != at::kHalf);
  return form;
}

PanelMatrix empty_panels(int64_t out, int64_t in, const PanelForm& form) {
  PanelMatrix made;
  made.out_features = out;
  made.in_features = in;
  made.form = form;
  const int64_t bytes = Panels{nullptr, form, in / kBlockColumns}.panel_bytes();
  made.data = large_tensor({num_panels(out) * bytes}, at::kByte);
  // The last panel's rows beyond w are zeros.
  std::memset(made.data.mutable_data_ptr<uint8_t>() + (num_panels(out) - 1) * bytes, 0,
              static_cast<size_t>(bytes));
  return made;
}

// Runs `fill`(panel's number, its memory) for all panels.
template <class Fill>
void fill_panels(PanelMatrix& made, Fill&& fill) {
  auto* data = made.data.mutable_data_ptr<uint8_t>();
  const int64_t bytes = view_of(made).panel_bytes();
  at::parallel_for(0, num_panels(made.out_features), rows_per_thread(kPanelRows * made.in_features),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) fill(i, data + i * bytes);
                   });
}

PanelMatrix to_short_panels(const at::Tensor& w, const UpperBytes& upper) {
  PanelForm form;
  form.numbers = PanelNumbers::kShortBFloat16;
  PanelMatrix made = empty_panels(w.size(0), w.size(1), form);
  const auto numbers = std::make_shared<ShortBFloat16>(upper);
  std::vector<std::vector<ShortBFloat16::Exception>> exceptions(
      static_cast<size_t>(num_panels(w.size(0))));
  fill_panels(made, [&](int64_t i, uint8_t* panel) {
    exceptions[static_cast<size_t>(i)] = numbers->write(w, i, panel);
  });
  numbers->keep(exceptions);
  made.short_numbers = numbers;
  return made;
}

}  // namespace

Panels view_of(const PanelMatrix& w) {
  return {w.data.const_data_ptr<uint8_t>(), w.form, w.in_features / kBlockColumns,
          w.short_numbers == nullptr ? nullptr : w.short_numbers->upper_bytes()};
}

int64_t padded_out(const PanelMatrix& w) { return num_panels(w.out_features) * kPanelRows; }

bool fits_panels(const AffineTensor& w) {
  return w.in_features() % kBlockColumns == 0 &&
         (w.group_size % kBlockColumns == 0 || w.group_size == kHalf);
}

bool fits_panels(const at::Tensor& w) {
  const auto type = w.scalar_type();
  return w.dim() == 2 && w.size(1) % kBlockColumns == 0 &&
         (type == at::kFloat || type == at::kHalf || type == at::kBFloat16);
}

PanelMatrix to_panels(const AffineTensor& w, int64_t activation_bits) {
  check_affine(w, "quant.to_panels");
  check<ShapeError>(fits_panels(w), "quant.to_panels: rows of ", w.in_features(), " in groups of ",
                    w.group_size, ", expected whole blocks of ", kBlockColumns, " and groups of ",
                    kHalf, " or of whole blocks; keep it as it is");
  check<ShapeError>(activation_bits == 8 || activation_bits == 16,
                    "quant.to_panels: activations of ", activation_bits, " bits, expected 8 or 16");
  PanelMatrix made = empty_panels(w.out_features(), w.in_features(), form_of(w));
  made.activation_bits = activation_bits;
  const Scales scales(w, made.form);
  const Panels panels = view_of(made);
  fill_panels(made, [&](int64_t i, uint8_t* panel) {
    const int64_t last = std::min((i + 1) * kPanelRows, w.out_features());
    for (int64_t row = i * kPanelRows; row < last; ++row) fill_row(w, scales, panels, row, panel);
  });
  return made;
}

PanelMatrix to_panels(const at::Tensor& w) {
  check<ShapeError>(fits_panels(w), "quant.to_panels: ", core::list_text(w.sizes()), " of ",
                    c10::toString(w.scalar_type()), ", expected rows of whole blocks of ",
                    kBlockColumns, " of float32, float16 or bfloat16; keep it as it is");
  PanelForm form;
  form.numbers = w.scalar_type() == at::kFloat  ? PanelNumbers::kFloat32
                 : w.scalar_type() == at::kHalf ? PanelNumbers::kFloat16
                                                : PanelNumbers::kBFloat16;
  const at::Tensor whole = w.detach().contiguous();
  if (form.numbers == PanelNumbers::kBFloat16) {
    if (const auto upper = UpperBytes::choose(whole)) return to_short_panels(whole, *upper);
  }
  PanelMatrix made = empty_panels(w.size(0), w.size(1), form);
  fill_panels(made, [&](int64_t i, uint8_t* panel) {
    fill_dense_panel(whole, form, i * kPanelRows, panel);
  });
  return made;
}

void read_panel_row(const PanelMatrix& w, int64_t row, float* to) {
  const Panels panels = view_of(w);
  if (w.short_numbers != nullptr) return w.short_numbers->read_row(panels, row, to);
  const uint8_t* panel = panels.data + row / kPanelRows * panels.panel_bytes();
  return panels.form.is_dense() ? read_dense_row(panels, panel, row % kPanelRows, to)
                                : read_coded_row(panels, panel, row % kPanelRows, to);
}

at::Tensor panel_values(const PanelMatrix& w) {
  at::Tensor values = at::empty({w.out_features, w.in_features});
  for (int64_t row = 0; row < w.out_features; ++row) {
    read_panel_row(w, row, values.mutable_data_ptr<float>() + row * w.in_features);
  }
  return values;
}

at::Tensor panel_rows(const PanelMatrix& w, const at::Tensor& indices) {
  const at::Tensor flat = indices.reshape({-1}).contiguous();
  at::Tensor rows = at::empty({flat.numel(), w.in_features});
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t row = flat.const_data_ptr<int64_t>()[i];
    check<ShapeError>(row >= 0 && row < w.out_features, "quant.panel_rows: row ", row,
                      ", expected 0 to ", w.out_features - 1);
    read_panel_row(w, row, rows.mutable_data_ptr<float>() + i * w.in_features);
  }
  auto shape = indices.sizes().vec();
  shape.push_back(w.in_features);
  return rows.view(shape);
}

}  // namespace weft::quant
