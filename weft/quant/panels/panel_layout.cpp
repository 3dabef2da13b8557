#include "weft/quant/panels/panel_layout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/formats/two_level_scales.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/panels/panel_codes.h"
#include "weft/quant/panels/panel_places.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::kSharedBlocks;
using kernels::PanelForm;
using kernels::PanelNumbers;
using kernels::Panels;
using kernels::PanelScales;

constexpr int64_t kHalf = kBlockColumns / 2;

// Scales, or offsets, as panels have them: one for each group and, with two levels, what
// kSharedBlocks blocks share.
struct Numbers {
  at::Tensor own, shared;
};

struct Scales {
  PanelScales type = PanelScales::kFloat16;
  Numbers scales, offsets;
};

std::optional<Scales> two_level_scales(const AffineTensor& w) {
  constexpr int64_t kColumns = kSharedBlocks * kBlockColumns;
  if (kColumns % w.group_size != 0) return std::nullopt;
  Scales made;
  made.type = PanelScales::kInt8;
  const auto split = [&](const at::Tensor& numbers, Numbers& to) {
    auto found = find_two_levels(numbers, kColumns / w.group_size);
    if (found) to = {found->codes, found->shared};
    return found.has_value();
  };
  if (!split(w.scales, made.scales)) return std::nullopt;
  if (!w.is_symmetric() && !split(w.offsets, made.offsets)) return std::nullopt;
  return made;
}

// The smallest of the types that have the numbers as they are.
Scales scales_of(const AffineTensor& w) {
  const bool are_halves = w.scales.scalar_type() == at::kHalf &&
                          (w.is_symmetric() || w.offsets.scalar_type() == at::kHalf);
  if (!are_halves) {
    if (auto made = two_level_scales(w)) return std::move(*made);
  }
  Scales made;
  made.type = are_halves ? PanelScales::kFloat16 : PanelScales::kFloat32;
  const auto type = are_halves ? at::kHalf : at::kFloat;
  made.scales.own = w.scales.to(type).contiguous();
  if (!w.is_symmetric()) made.offsets.own = w.offsets.to(type).contiguous();
  return made;
}

const uint8_t* bytes_of(const at::Tensor& tensor) {
  return static_cast<const uint8_t*>(tensor.const_data_ptr());
}

// What blocks of row `row` share.
void fill_shared(const Numbers& numbers, const Panels& panels, int64_t row, uint8_t* to) {
  const int64_t runs = numbers.shared.size(1);
  const auto* from = numbers.shared.const_data_ptr<float>() + row * runs;
  for (int64_t i = 0; i < runs; ++i, to += 4 * panels.form.shared_numbers()) {
    std::memcpy(to + row % kPanelRows * 4, from + i, sizeof(float));
  }
}

// All blocks of one row of w.
void fill_row(const AffineTensor& w, const Scales& scales, const Panels& panels, int64_t row,
              uint8_t* panel) {
  const PanelForm& form = panels.form;
  if (scales.type == PanelScales::kInt8) {
    fill_shared(scales.scales, panels, row, panel);
    if (form.has_offsets) fill_shared(scales.offsets, panels, row, panel + 4 * kPanelRows);
  }
  panel += panels.shared_bytes();
  const BlockRow at(form, row % kPanelRows);
  const auto size = static_cast<size_t>(at.scale_size);
  const int64_t bytes = kBlockColumns * w.bits / 8, group_bytes = form.header_bytes() / form.groups;
  const uint8_t* packed = w.packed.const_data_ptr<uint8_t>() + row * w.packed.size(1);
  for (int64_t b = 0; b < panels.num_blocks; ++b, panel += form.block_bytes()) {
    for (int64_t g = 0; g < form.groups; ++g) {
      const int64_t group = (b * kBlockColumns + g * kHalf) / w.group_size;
      const int64_t from = (row * w.scales.size(1) + group) * at.scale_size;
      uint8_t* header = panel + g * group_bytes;
      std::memcpy(header + at.scale, bytes_of(scales.scales.own) + from, size);
      if (form.has_offsets) {
        std::memcpy(header + at.offset, bytes_of(scales.offsets.own) + from, size);
      }
    }
    write_panel_codes(read_affine_codes(packed + b * bytes, w.bits), form.numbers,
                      panel + at.codes);
  }
}

float float_at(const uint8_t* from) {
  float value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

float scale_at(const PanelForm& form, const uint8_t* from, const uint8_t* shared) {
  if (form.scales == PanelScales::kFloat32) return float_at(from);
  if (form.scales == PanelScales::kInt8) {
    return static_cast<float>(static_cast<int8_t>(*from)) * float_at(shared);
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
  const uint8_t* all_shared = panel + 4 * row;
  panel += panels.shared_bytes();
  for (int64_t b = 0; b < panels.num_blocks; ++b, panel += form.block_bytes()) {
    RowCodes codes = read_panel_codes(panel + at.codes, form.numbers);
    if (form.table != nullptr) {
      for (uint8_t& code : codes) code = form.table[code];
    }
    const uint8_t* shared = all_shared + b / kSharedBlocks * form.shared_numbers() * 4;
    for (int64_t i = 0; i < kBlockColumns; i += columns) {
      const uint8_t* header = panel + i / columns * group_bytes;
      const float scale = scale_at(form, header + at.scale, shared);
      const float offset = form.has_offsets
                               ? scale_at(form, header + at.offset, shared + 4 * kPanelRows)
                               : -form.zero * scale;
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
  const kernels::PanelKernel& kernel = kernels::active_panel_kernel();
  std::vector<std::vector<ShortBFloat16::Exception>> exceptions(
      static_cast<size_t>(num_panels(w.size(0))));
  fill_panels(made, [&](int64_t i, uint8_t* panel) {
    exceptions[static_cast<size_t>(i)] = numbers->write(kernel, w, i, panel);
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

PanelView::PanelView(const PanelMatrix& w)
    : panels(view_of(w)),
      num_panels(quant::num_panels(w.out_features)),
      short_numbers(w.short_numbers.get()) {}

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
  const Scales scales = scales_of(w);
  PanelMatrix made =
      empty_panels(w.out_features(), w.in_features(),
                   coded_form({w.bits, w.group_size, !w.is_symmetric(), scales.type}));
  made.activation_bits = activation_bits;
  const Panels panels = view_of(made);
  fill_panels(made, [&](int64_t i, uint8_t* panel) {
    const int64_t last = std::min((i + 1) * kPanelRows, w.out_features());
    for (int64_t row = i * kPanelRows; row < last; ++row) fill_row(w, scales, panels, row, panel);
  });
  return made;
}

PanelMatrix to_panels(const at::Tensor& w, HalfPanels halves) {
  check<ShapeError>(fits_panels(w), "quant.to_panels: ", core::list_text(w.sizes()), " of ",
                    c10::toString(w.scalar_type()), ", expected rows of whole blocks of ",
                    kBlockColumns, " of float32, float16 or bfloat16; keep it as it is");
  PanelForm form;
  form.numbers = w.scalar_type() == at::kFloat  ? PanelNumbers::kFloat32
                 : w.scalar_type() == at::kHalf ? PanelNumbers::kFloat16
                                                : PanelNumbers::kBFloat16;
  const at::Tensor whole = w.detach().contiguous();
  if (form.numbers == PanelNumbers::kBFloat16 && halves == HalfPanels::kShortest) {
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
