#pragma once

#include <cstdint>

#include "weft/nn/kernels/products.h"

namespace weft::nn::ordered {

/// c [m, n] += a [m, k] b [k, n] in float32, n a multiple of 16: every sum takes its products one
/// after another, k ascending, behind what c holds. So its bits depend on its own row and column
/// alone, not on m, n or where the matrices lie, and k may be taken in pieces.
struct ProductKernel {
  /// As kernels::Kernel::name.
  const char* name;
  void (*multiply)(const kernels::Operand<float>& a, const kernels::Factor<float>& b, int64_t m,
                   int64_t n, int64_t k, const kernels::Sums& c);
};

extern const ProductKernel kPlainProduct;
#if defined(__x86_64__)
extern const ProductKernel kAvx2Product;
extern const ProductKernel kAvx512Product;
#endif

/// The one that goes with kernels::active_kernel. Throws as that.
const ProductKernel& active_product();

}  // namespace weft::nn::ordered
