#include "weft/models/passes/cuda/cuda_kv_store.h"

#include <cstddef>
#include <utility>

#include "weft/core/error.h"

namespace weft::models {
namespace {

constexpr int64_t kStoredFloat = sizeof(float);

}  // namespace

CudaKvStore::CudaKvStore(const Sizes& sizes)
    : sizes_(sizes),
      keys_(sizes.num_layers * sizes.of_layer() * kStoredFloat),
      values_(sizes.num_layers * sizes.of_layer() * kStoredFloat) {}

void CudaKvStore::copy(int64_t to, const KvStore& from, int64_t start, int64_t count) {
  const auto& source = dynamic_cast<const CudaKvStore&>(from);
  Sizes expected = source.sizes_;
  expected.capacity = sizes_.capacity;
  core::check<core::InternalError>(sizes_ == expected,
                                   "models.CudaKvStore.copy: a cache of another model");
  const int64_t bytes = sizes_.head_dim * kStoredFloat;
  cuda::RowCopy call;
  call.rows = sizes_.num_layers * sizes_.batch * sizes_.kv_heads;
  call.bytes = count * bytes;
  call.to_stride = sizes_.capacity * bytes;
  call.from_stride = source.sizes_.capacity * bytes;
  for (const auto& [own, other] :
       {std::pair(&keys_, &source.keys_), std::pair(&values_, &source.values_)}) {
    call.to = own->as<std::byte>() + to * bytes;
    call.from = other->as<const std::byte>() + start * bytes;
    cuda::copy_rows(call);
  }
}

}  // namespace weft::models
