#include "weft/train/psdp/buffer_pool.h"

#include <algorithm>
#include <utility>

namespace weft::train {

void BufferPool::fill(const at::Tensor& tensor) {
  const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
  const c10::Storage& storage = tensor.storage();
  auto& free = free_[bytes];
  if (free.empty()) {
    storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  } else {
    storage.set_data_ptr_noswap(std::move(free.back()));
    free.pop_back();
  }
  storage.set_nbytes(bytes);
  used_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
}

void BufferPool::drain(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const size_t bytes = storage.nbytes();
  free_[bytes].push_back(storage.set_data_ptr(storage.allocator()->allocate(0)));
  storage.set_nbytes(0);
  used_bytes_ -= bytes;
}

}  // namespace weft::train
