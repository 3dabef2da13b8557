#include "weft/quant/panels/panel_places.h"

#include <cstring>

#include "weft/quant/large_tensor.h"

namespace weft::quant {

using kernels::kBlockColumns;
using kernels::PanelForm;
using kernels::PanelNumbers;

namespace {

PanelNumbers numbers_of(const CodedNumbers& numbers) {
  if (numbers.table != nullptr) {
    return numbers.index_bits <= 3 ? PanelNumbers::kTable3 : PanelNumbers::kTable4;
  }
  switch (numbers.bits) {
    case 1:
    case 2:
      return PanelNumbers::kCodes2;
    case 3:
      return PanelNumbers::kCodes3;
    case 4:
      return PanelNumbers::kCodes4;
    case 5:
      return PanelNumbers::kCodes5;
    case 6:
      return PanelNumbers::kCodes6;
    default:
      return PanelNumbers::kCodes8;
  }
}

}  // namespace

PanelForm coded_form(const CodedNumbers& numbers) {
  PanelForm form;
  form.numbers = numbers_of(numbers);
  form.table = numbers.table;
  form.has_offsets = numbers.has_offsets;
  form.zero = static_cast<float>(int64_t{1} << (numbers.bits - 1));
  form.groups = numbers.group_size % kBlockColumns == 0 ? 1 : 2;
  form.scales = numbers.scales;
  return form;
}

PanelMatrix empty_panels(int64_t out, int64_t in, const PanelForm& form) {
  PanelMatrix made;
  made.out_features = out;
  made.in_features = in;
  made.form = form;
  const int64_t bytes = kernels::Panels{nullptr, form, in / kBlockColumns}.panel_bytes();
  made.data = large_tensor({num_panels(out) * bytes}, at::kByte);
  // The last panel's rows beyond the matrix are zeros.
  std::memset(made.data.mutable_data_ptr<uint8_t>() + (num_panels(out) - 1) * bytes, 0,
              static_cast<size_t>(bytes));
  return made;
}

}  // namespace weft::quant
