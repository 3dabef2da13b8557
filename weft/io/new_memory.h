#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::io {

/// Makes the pages of `memory`, which is new and will be written as a whole, cheaper than they come
/// when they are first written: of 2 MiB where there is room for such, which the system clears as
/// they are written, and the others at once. Changes no byte.
void prepare_new_memory(std::span<std::byte> memory);

/// Memory for a while, straight from the system: so that it doesn't lie between tensors that stay.
class ReadBuffer {
 public:
  ReadBuffer() = default;
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  ~ReadBuffer() { release(); }

  /// The first `size` bytes, whose values are any. Throws IoError if there is no memory.
  std::span<std::byte> first(uint64_t size);
  uint64_t size() const { return size_; }

 private:
  void release();

  std::byte* bytes_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace weft::io
