#include "weft/nn/kernels/products.h"
#include "weft/nn/kernels/vectors.h"
#include "weft/nn/ordered/product_kernel.h"

namespace weft::nn::ordered {
namespace {

struct Types {
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));
  using Half = uint16_t __attribute__((vector_size(8)));
  using Bytes = int8_t __attribute__((vector_size(4)));
};
struct Plain : kernels::Vectors<Types> {
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmVectors = 2;
};

}  // namespace

const ProductKernel kPlainProduct = {"plain", kernels::multiply_vectors<Plain, float>};

}  // namespace weft::nn::ordered
