#include "weft/quant/panels/gguf_panels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/core/error.h"
#include "weft/quant/formats/gguf_blocks.h"
#include "weft/quant/formats/two_level_block.h"
#include "weft/quant/panels/panel_codes.h"
#include "weft/quant/panels/panel_places.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::Dtype;
using core::ShapeError;
using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::kSharedBlocks;
using kernels::PanelForm;
using kernels::PanelNumbers;
using kernels::Panels;
using kernels::PanelScales;

// Bytes of a row that lie side by side in a block of codes, and the bytes from these to the next.
constexpr int64_t kStep = 4;
constexpr int64_t kStride = kStep * kPanelRows;

// Codes of 4 bits are paired in a block of 32 as in a panel's, those of 8 lie in the same order.
void place_codes(const GgufBlockInfo& info, const uint8_t* block, PanelNumbers numbers,
                 uint8_t* to) {
  const uint8_t* from = block + info.header_bytes();
  if (info.index_bits() == 4) {
    for (int64_t i = 0; i < kBlockColumns / 2 / kStep; ++i) {
      std::memcpy(to + i * kStride, from + i * kStep, kStep);
    }
    return;
  }
  if (info.index_bits() == 8) {
    for (int64_t i = 0; i < kBlockColumns / kStep; ++i) {
      uint32_t codes = 0;
      std::memcpy(&codes, from + i * kStep, kStep);
      codes ^= 0x80808080U;
      std::memcpy(to + i * kStride, &codes, kStep);
    }
    return;
  }
  RowCodes codes;
  decode_one_level_codes(info, block, codes.data());
  write_panel_codes(codes, numbers, to);
}

// A row's block of 32 columns.
void place_one_level(const GgufBlockInfo& info, const uint8_t* block, const PanelForm& form,
                     int64_t row, uint8_t* to) {
  const BlockRow at(form, row);
  if (form.scales == PanelScales::kFloat32) {
    const float scale = mxfp4_scale(block);
    std::memcpy(to + at.scale, &scale, sizeof(scale));
  } else {
    std::memcpy(to + at.scale, block, 2);
  }
  if (form.has_offsets) std::memcpy(to + at.offset, block + 2, 2);
  place_codes(info, block, form.numbers, to + at.codes);
}

// A row's block of 256 columns; `shared` is what its kSharedBlocks blocks share.
void place_two_levels(const GgufBlockInfo& info, const uint8_t* block, const PanelForm& form,
                      int64_t row, uint8_t* shared, uint8_t* to) {
  TwoLevelBlock parts{};
  decode_two_level_block(info.dtype, block, parts);
  std::memcpy(shared + 4 * row, &parts.scale, sizeof(float));
  if (form.has_offsets) {
    std::memcpy(shared + 4 * (kPanelRows + row), &parts.offset, sizeof(float));
  }
  const BlockRow at(form, row);
  const int64_t group_bytes = form.header_bytes() / form.groups;
  for (int64_t b = 0; b < kSharedBlocks; ++b, to += form.block_bytes()) {
    for (int64_t g = 0; g < form.groups; ++g) {
      const auto group = static_cast<size_t>(b * form.groups + g);
      uint8_t* header = to + g * group_bytes;
      header[at.scale] = static_cast<uint8_t>(parts.scales[group]);
      if (form.has_offsets) header[at.offset] = static_cast<uint8_t>(parts.offsets[group]);
    }
    RowCodes codes;
    std::copy_n(parts.codes.begin() + b * kBlockColumns, kBlockColumns, codes.begin());
    write_panel_codes(codes, form.numbers, to + at.codes);
  }
}

// Rows of blocks of the file.
struct BlockRows {
  const GgufBlockInfo& info;
  const uint8_t* data;
  int64_t row_bytes;
  int64_t first;
  int64_t count;
};

// Those rows that are in the panel, a block of all rows after another, as the panel is written.
void fill_panel(const BlockRows& rows, const Panels& panels, int64_t index, uint8_t* panel) {
  const core::DtypeInfo& type = core::info(rows.info.dtype);
  const PanelForm& form = panels.form;
  const int64_t run = type.block_elements / kBlockColumns, start = index * kPanelRows;
  const int64_t begin = std::max(rows.first, start) - start;
  const int64_t end = std::min(rows.first + rows.count, start + kPanelRows) - start;
  const uint8_t* from = rows.data + (start + begin - rows.first) * rows.row_bytes;
  uint8_t* to = panel + panels.shared_bytes();
  for (int64_t i = 0; i < panels.num_blocks / run; ++i, from += type.block_bytes) {
    for (int64_t row = begin; row < end; ++row) {
      const uint8_t* block = from + (row - begin) * rows.row_bytes;
      if (run == 1) {
        place_one_level(rows.info, block, form, row, to);
      } else {
        place_two_levels(rows.info, block, form, row, panel + i * form.shared_numbers() * 4, to);
      }
    }
    to += run * form.block_bytes();
  }
}

PanelScales panel_scales(const GgufBlockInfo& info) {
  if (!info.has_float_scales) return PanelScales::kFloat16;
  return info.dtype == Dtype::kMXFP4 ? PanelScales::kFloat32 : PanelScales::kInt8;
}

}  // namespace

bool has_gguf_panels(Dtype dtype, int64_t in) {
  return core::info(dtype).is_block() && in % core::info(dtype).block_elements == 0;
}

PanelMatrix empty_gguf_panels(Dtype dtype, int64_t out, int64_t in, int64_t activation_bits) {
  check<ShapeError>(out > 0 && has_gguf_panels(dtype, in), "quant.empty_gguf_panels: [", out, ", ",
                    in, "] of ", core::info(dtype).name, ", expected rows of whole blocks");
  check<ShapeError>(activation_bits == 8 || activation_bits == 16,
                    "quant.empty_gguf_panels: activations of ", activation_bits,
                    " bits, expected 8 or 16");
  const GgufBlockInfo& info = gguf_block_info(dtype);
  PanelMatrix made = empty_panels(out, in,
                                  coded_form({info.bits, info.group_size, !info.is_symmetric,
                                              panel_scales(info), info.table, info.index_bits()}));
  made.activation_bits = activation_bits;
  return made;
}

void write_gguf_rows(Dtype dtype, std::span<const std::byte> blocks, int64_t first,
                     PanelMatrix& to) {
  const core::DtypeInfo& type = core::info(dtype);
  const int64_t row_bytes = to.in_features / type.block_elements * type.block_bytes;
  const auto bytes = static_cast<int64_t>(blocks.size());
  const int64_t count = bytes / row_bytes;
  check<ShapeError>(first >= 0 && bytes % row_bytes == 0 && first + count <= to.out_features,
                    "quant.write_gguf_rows: ", bytes, " bytes from row ", first,
                    ", expected whole rows of ", row_bytes, " within ", to.out_features);
  const BlockRows rows{gguf_block_info(dtype), reinterpret_cast<const uint8_t*>(blocks.data()),
                       row_bytes, first, count};
  const Panels panels = view_of(to);
  auto* const data = to.data.mutable_data_ptr<uint8_t>();
  at::parallel_for(first / kPanelRows, num_panels(first + count),
                   rows_per_thread(kPanelRows * to.in_features), [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       fill_panel(rows, panels, i, data + i * panels.panel_bytes());
                     }
                   });
}

}  // namespace weft::quant
