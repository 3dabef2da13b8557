#include "weft/models/load/plain_latents.h"

#include <ATen/core/Tensor.h>
#include <c10/util/accumulate.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/io/tensor_file_builder.h"
#include "weft/quant/affine.h"
#include "weft/quant/formats/gguf_blocks.h"

namespace weft::models {
namespace {

constexpr const char* kWhere = "models.with_plain_latents";

bool is_latent_blocks(const io::TensorMeta& tensor) {
  const bool is_latent =
      tensor.name.ends_with(".attn_k_b.weight") || tensor.name.ends_with(".attn_v_b.weight");
  return is_latent && !tensor.shape.empty() && io::info(tensor.dtype).is_block();
}

// A file in memory that goes with its last descriptor.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("weft-latents", MFD_CLOEXEC)) {
    if (!fd_.is_open()) core::fail_errno(kWhere, "memfd_create", errno);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }
  uint64_t size() const { return size_; }

  void grow(uint64_t bytes) {
    size_ += bytes;
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) {
      core::fail_errno(kWhere, "ftruncate", errno);
    }
  }
  void write(uint64_t offset, const void* data, size_t bytes) const {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::pwrite(fd_.get(), from, bytes, static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) core::fail_errno(kWhere, "pwrite", written < 0 ? errno : ENOSPC);
      from += written;
      offset += static_cast<uint64_t>(written);
      bytes -= static_cast<size_t>(written);
    }
  }

 private:
  core::FileDescriptor fd_;
  uint64_t size_ = 0;
};

uint64_t plain_bytes(const io::TensorMeta& tensor) {
  return static_cast<uint64_t>(c10::multiply_integers(tensor.shape)) * sizeof(at::Half);
}

at::Tensor halves_of(const io::TensorFile& file, const io::TensorMeta& tensor) {
  std::vector<std::byte> stored(tensor.num_bytes);
  file.read_at(tensor.file, tensor.offset, stored);
  const int64_t columns = tensor.shape.back();
  const int64_t rows = c10::multiply_integers(tensor.shape) / columns;
  return quant::dequantize(quant::from_gguf_blocks(tensor.dtype, stored, rows, columns), at::kHalf)
      .contiguous();
}

}  // namespace

std::shared_ptr<const io::TensorFile> with_plain_latents(const io::TensorFile& file,
                                                         LatentBytes bytes) {
  if (!file.is_gguf() || std::ranges::none_of(file.tensors(), is_latent_blocks)) return nullptr;
  MemoryFile memory;
  std::vector<io::TensorMeta> made;
  for (const io::TensorMeta& tensor : file.tensors()) {
    if (!is_latent_blocks(tensor)) continue;
    io::TensorMeta plain = tensor;
    plain.dtype = io::Dtype::kF16;
    plain.offset = memory.size();
    plain.num_bytes = plain_bytes(plain);
    memory.grow(plain.num_bytes);
    if (bytes == LatentBytes::kRead) {
      const at::Tensor halves = halves_of(file, tensor);
      memory.write(plain.offset, halves.const_data_ptr(), plain.num_bytes);
    }
    made.push_back(std::move(plain));
  }
  io::TensorFileBuilder builder(file);
  builder.replace_tensors(memory.path(), std::move(made));
  return builder.finish();
}

}  // namespace weft::models
