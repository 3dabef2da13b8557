#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>

/// What quantizers of any mode share.
namespace weft::quant {

/// w in float32, contiguous. Throws ShapeError naming `where` unless it is a finite floating matrix
/// whose rows are whole bytes of `bits` and whole groups.
at::Tensor check_quantizable(const at::Tensor& w, int64_t bits, int64_t group_size,
                             const char* where);

/// Throws ShapeError naming `where`, `what` and `remedy` if a number of the matrix is not finite.
void check_finite(const at::Tensor& values, const char* where, const char* what,
                  const char* remedy);

/// Makes codes of the quant group number `group`, counted row after row.
using QuantizeGroup =
    std::function<void(int64_t group, std::span<const float> w, std::span<uint8_t> codes)>;

/// Calls `quantize` for all groups of `values`, on all threads, and packs the codes:
/// uint8 [out, in * bits / 8].
at::Tensor pack_groups(const at::Tensor& values, int64_t bits, int64_t group_size,
                       const QuantizeGroup& quantize);

}  // namespace weft::quant
