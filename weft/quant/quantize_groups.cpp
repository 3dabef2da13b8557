#include "weft/quant/quantize_groups.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <vector>

#include "weft/core/error.h"
#include "weft/quant/affine_reference.h"
#include "weft/quant/code_stream.h"
#include "weft/quant/view.h"

namespace weft::quant {

using core::check;
using core::ShapeError;

void check_finite(const at::Tensor& values, const char* where, const char* what,
                  const char* remedy) {
  const at::Tensor wrong = at::isfinite(values).logical_not();
  if (!wrong.any().item<bool>()) return;
  const at::Tensor first = wrong.nonzero()[0];
  check<ShapeError>(false, where, ": ", what, "[", first[0].item<int64_t>(), ", ",
                    first[1].item<int64_t>(), "], expected a finite number, got ",
                    values[first[0].item<int64_t>()][first[1].item<int64_t>()].item<double>(), "; ",
                    remedy);
}

at::Tensor check_quantizable(const at::Tensor& w, int64_t bits, int64_t group_size,
                             const char* where) {
  check<ShapeError>(w.defined() && w.dim() == 2 && w.numel() > 0 && w.is_floating_point(), where,
                    ": w, expected a floating matrix [out, in], got ",
                    w.defined() ? core::list_text(w.sizes()) : "none",
                    w.defined() ? core::join(" of ", c10::toString(w.scalar_type())) : "",
                    "; flatten and convert it");
  const int64_t in = w.size(1);
  check<ShapeError>(group_size > 0 && in % group_size == 0, where,
                    ": group size, expected a divisor of the ", in, " columns, got ", group_size,
                    "; use another group size");
  check<ShapeError>(in * bits % 8 == 0, where, ": columns, expected rows of whole bytes, got ", in,
                    " columns of ", bits, " bits; use a multiple of 8 columns or 8 bits");
  at::Tensor values = w.detach().to(at::kCPU, at::kFloat).contiguous();
  check_finite(values, where, "w", "look for the step that made it");
  return values;
}

at::Tensor pack_groups(const at::Tensor& values, int64_t bits, int64_t group_size,
                       const QuantizeGroup& quantize) {
  const int64_t out = values.size(0), in = values.size(1), row_bytes = in * bits / 8;
  const int64_t groups = in / group_size;
  const auto length = static_cast<size_t>(group_size);
  at::Tensor packed = at::empty({out, row_bytes}, at::kByte);
  const float* from = values.const_data_ptr<float>();
  auto* to = packed.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, out, rows_per_thread(in), [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(in));
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t column = group * group_size;
        quantize(row * groups + group, {from + row * in + column, length},
                 std::span(codes).subspan(static_cast<size_t>(column), length));
      }
      pack_codes(codes, bits, {to + row * row_bytes, static_cast<size_t>(row_bytes)});
    }
  });
  return packed;
}

}  // namespace weft::quant
