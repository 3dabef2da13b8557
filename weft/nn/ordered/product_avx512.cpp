#if defined(__x86_64__)

#include "weft/nn/kernels/products.h"
#include "weft/nn/kernels/vectors.h"
#include "weft/nn/ordered/product_kernel.h"

namespace weft::nn::ordered {
namespace {

struct Types {
  using F = float __attribute__((vector_size(64)));
  using I = int32_t __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
  using Bytes = int8_t __attribute__((vector_size(16)));
};
struct Avx512 : kernels::Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 4;
};

}  // namespace

const ProductKernel kAvx512Product = {"avx512", kernels::multiply_vectors<Avx512, float>};

}  // namespace weft::nn::ordered

#endif
