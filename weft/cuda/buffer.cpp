#include "weft/cuda/buffer.h"

#include "weft/core/error.h"
#include "weft/cuda/runtime.h"

namespace weft::cuda {

Buffer::Buffer(int64_t bytes) : num_bytes_(bytes) {
  if (bytes > 0) check_cuda(cudaMalloc(&data_, static_cast<size_t>(bytes)), "cudaMalloc");
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  return *this;
}

// At a process's end the driver may be gone already: an error of cudaFree says nothing.
Buffer::~Buffer() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

bool Buffer::make_room(int64_t bytes) {
  if (bytes <= num_bytes_) return false;
  *this = Buffer();
  *this = Buffer(bytes);
  return true;
}

void Buffer::upload(const void* from, int64_t bytes) {
  core::check<core::InternalError>(bytes <= num_bytes_, "cuda.Buffer.upload: ", bytes,
                                   " bytes, expected at most ", num_bytes_);
  if (bytes == 0) return;
  check_cuda(
      cudaMemcpyAsync(data_, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream()),
      "cudaMemcpyAsync");
  // Whether the driver has taken the host's memory by now differs from machine to machine.
  check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

void Buffer::download(void* to, int64_t bytes) const {
  core::check<core::InternalError>(bytes <= num_bytes_, "cuda.Buffer.download: ", bytes,
                                   " bytes, expected at most ", num_bytes_);
  if (bytes == 0) return;
  check_cuda(
      cudaMemcpyAsync(to, data_, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream()),
      "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
}

void copy_rows(const RowCopy& call) {
  check_cuda(
      cudaMemcpy2DAsync(call.to, static_cast<size_t>(call.to_stride), call.from,
                        static_cast<size_t>(call.from_stride), static_cast<size_t>(call.bytes),
                        static_cast<size_t>(call.rows), cudaMemcpyDeviceToDevice, stream()),
      "cudaMemcpy2DAsync");
}

}  // namespace weft::cuda
