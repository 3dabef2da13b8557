#include "weft/io/new_memory.h"

#include <sys/mman.h>

#include <cstdint>

#include "weft/core/error.h"

namespace weft::io {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// The huge pages that lie wholly in `memory`.
std::span<std::byte> huge_pages(std::span<std::byte> memory) {
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = (start + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t last = (start + memory.size()) / kHugePage * kHugePage;
  return last <= first ? std::span<std::byte>() : memory.subspan(first - start, last - first);
}

// Has the pages that lie wholly in `memory` made at once, which costs less than an exception for
// each of them. Where the system doesn't know the request they are made when they are written.
void populate(std::span<std::byte> memory) {
  constexpr uintptr_t kPage = 4096;
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  const uintptr_t first = (start + kPage - 1) / kPage * kPage;
  const uintptr_t last = (start + memory.size()) / kPage * kPage;
  if (first >= last) return;
  static_cast<void>(::madvise(memory.data() + (first - start), last - first, MADV_POPULATE_WRITE));
}

}  // namespace

void prepare_new_memory(std::span<std::byte> memory) {
  const auto huge = huge_pages(memory);
  if (huge.empty()) {
    populate(memory);
    return;
  }
  static_cast<void>(::madvise(huge.data(), huge.size(), MADV_HUGEPAGE));
  const auto before = static_cast<size_t>(huge.data() - memory.data());
  populate(memory.first(before));
  populate(memory.subspan(before + huge.size()));
}

std::span<std::byte> ReadBuffer::first(uint64_t size) {
  if (size_ >= size) return {bytes_, size};
  release();
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  core::check<core::IoError>(memory != MAP_FAILED, "io.ReadBuffer: no memory for ", size,
                             " bytes; use more ranks, or a machine with more memory");
  bytes_ = static_cast<std::byte*>(memory);
  size_ = size;
  return {bytes_, size};
}

void ReadBuffer::release() {
  if (bytes_ != nullptr) ::munmap(bytes_, size_);
  bytes_ = nullptr;
  size_ = 0;
}

}  // namespace weft::io
