#include "weft/core/new_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "weft/core/error.h"

namespace weft::core {
namespace {

constexpr uint64_t kPage = 4096, kHugePage = uint64_t{2} << 20;
// What one request to the system is for; a larger size has a region of its own.
constexpr uint64_t kRegion = 32 * kHugePage;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Addresses that have memory from when they are written to.
class Region {
 public:
  explicit Region(uint64_t size) : mapped_(size + kHugePage), size_(size) {
    mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check<IoError>(mapping_ != MAP_FAILED, "core.new_memory: no memory for ", size,
                   " bytes; use more ranks, or a machine with more memory");
    const auto start = reinterpret_cast<uintptr_t>(mapping_);
    begin_ = static_cast<std::byte*>(mapping_) + (round_up(start, kHugePage) - start);
    static_cast<void>(::madvise(begin_, size_, MADV_HUGEPAGE));
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { ::munmap(mapping_, mapped_); }

  uint64_t room() const { return size_ - used_; }

  std::byte* take(uint64_t size) {
    std::byte* taken = begin_ + used_;
    used_ += size;
    return taken;
  }

 private:
  void* mapping_ = nullptr;
  std::byte* begin_ = nullptr;
  uint64_t mapped_, size_, used_ = 0;
};

// The system has the pages back that lie wholly in the bytes; others are there as long as the
// region is.
void give_back(std::byte* bytes, uint64_t size) {
  const auto start = reinterpret_cast<uintptr_t>(bytes);
  const uint64_t skipped = round_up(start, kPage) - start;
  const uint64_t whole = size < skipped ? 0 : (size - skipped) / kPage * kPage;
  if (whole > 0) static_cast<void>(::madvise(bytes + skipped, whole, MADV_DONTNEED));
}

}  // namespace

std::shared_ptr<std::byte> new_memory(uint64_t size) {
  constexpr uint64_t kAlignment = 64;
  static std::mutex mutex;
  static std::shared_ptr<Region> latest;
  const uint64_t needed = round_up(size, kAlignment);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Region> region = latest;
  if (region == nullptr || region->room() < needed) {
    region = std::make_shared<Region>(std::max(kRegion, round_up(needed, kHugePage)));
  }
  std::byte* bytes = region->take(needed);
  if (latest == nullptr || latest->room() < region->room()) latest = region;
  return {bytes, [region, size](std::byte* taken) { give_back(taken, size); }};
}

std::span<std::byte> ReadBuffer::first(uint64_t size) {
  if (size_ >= size) return {bytes_, size};
  release();
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check<IoError>(memory != MAP_FAILED, "core.ReadBuffer: no memory for ", size,
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

}  // namespace weft::core
