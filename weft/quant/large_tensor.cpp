#include "weft/quant/large_tensor.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/accumulate.h>

#include <memory>

#include "weft/core/memory/new_memory.h"

namespace weft::quant {

at::Tensor large_tensor(at::IntArrayRef shape, at::ScalarType type) {
  const auto elements = static_cast<uint64_t>(c10::multiply_integers(shape));
  std::shared_ptr<std::byte> memory = core::new_memory(elements * c10::elementSize(type));
  return at::from_blob(
      memory.get(), shape, [memory](void* /*data*/) {}, type);
}

}  // namespace weft::quant
