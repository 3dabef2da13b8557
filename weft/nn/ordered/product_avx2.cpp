#if defined(__x86_64__)

#include "weft/nn/kernels/products.h"
#include "weft/nn/kernels/vectors.h"
#include "weft/nn/ordered/product_kernel.h"

namespace weft::nn::ordered {
namespace {

struct Types {
  using F = float __attribute__((vector_size(32)));
  using I = int32_t __attribute__((vector_size(32)));
  using U = uint32_t __attribute__((vector_size(32)));
  using Half = uint16_t __attribute__((vector_size(16)));
  using Bytes = int8_t __attribute__((vector_size(8)));
};
struct Avx2 : kernels::Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 2;
};

}  // namespace

const ProductKernel kAvx2Product = {"avx2", kernels::multiply_vectors<Avx2, float>};

}  // namespace weft::nn::ordered

#endif
