#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace weft::core {

/// Memory for what stays, 64-byte aligned, whose values are any. It comes from pages of 2 MiB,
/// which neighbours share: the system clears such a page at ten times the rate of small ones, and
/// no tensor has small ones at its ends. Whole pages go back to the system when the owner does, and
/// what it had is taken again before more. May be called by several threads. Throws IoError if
/// there is no memory.
std::shared_ptr<std::byte> new_memory(uint64_t size);

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

}  // namespace weft::core
