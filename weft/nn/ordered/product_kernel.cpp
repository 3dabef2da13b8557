#include "weft/nn/ordered/product_kernel.h"

#include <string_view>

#include "weft/nn/kernels/select.h"

namespace weft::nn::ordered {

const ProductKernel& active_product() {
  static const ProductKernel& kernel = []() -> const ProductKernel& {
    const std::string_view wanted = kernels::active_kernel().name;
#if defined(__x86_64__)
    if (wanted == kAvx512Product.name) return kAvx512Product;
    if (wanted == kAvx2Product.name) return kAvx2Product;
#endif
    return kPlainProduct;
  }();
  return kernel;
}

}  // namespace weft::nn::ordered
