#include "weft/io/stored_tensor.h"

#include "weft/core/error.h"
#include "weft/quant/large_tensor.h"
#include "weft/quant/torch_dtype.h"

namespace weft::io {

StoredType stored_type(const TensorFile& file, const View& view) {
  StoredType stored{view.shape(), at::kByte};
  if (view.packing().unit_elements > 1) {
    int64_t& columns = stored.shape.back();
    columns = columns / view.packing().unit_elements * view.packing().unit_bytes();
    return stored;
  }
  const auto known = quant::torch_dtype(view.dtype());
  core::check<core::FormatError>(known.has_value(), file.path(), ": tensor '", view.tensor_name(),
                                 "': type ", info(view.dtype()).name,
                                 ", expected a floating or quantized type");
  stored.type = *known;
  return stored;
}

at::Tensor new_stored(const TensorFile& file, const ShardRecipe& recipe) {
  const StoredType type = stored_type(file, recipe.result);
  return quant::large_tensor(type.shape, type.type);
}

}  // namespace weft::io
