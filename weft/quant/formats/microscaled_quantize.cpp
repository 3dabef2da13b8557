#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/quant/formats/microscaled.h"
#include "weft/quant/formats/microscaled_reference.h"
#include "weft/quant/quantize_groups.h"

namespace weft::quant {

MicroscaledTensor quantize_microscaled(const at::Tensor& w, Mode mode) {
  constexpr const char* kWhere = "quant.quantize_microscaled";
  core::check<core::ShapeError>(
      mode != Mode::kAffine, kWhere,
      ": mode, expected mxfp4, mxfp8 or nvfp4, got affine; use quantize_affine");
  const ModeInfo& own = mode_info(mode);
  const at::Tensor values = check_quantizable(w, own.bits, own.group_size, kWhere);
  MicroscaledTensor result;
  result.mode = mode;
  result.group_size = own.group_size;
  result.scales = at::empty({w.size(0), w.size(1) / own.group_size}, at::kByte);
  auto* scale_of = result.scales.mutable_data_ptr<uint8_t>();
  result.packed =
      pack_groups(values, own.bits, own.group_size, [&](int64_t group, auto from, auto codes) {
        scale_of[group] = reference::quantize_microscaled_group(mode, from, codes);
      });
  return result;
}

}  // namespace weft::quant
