#include "weft/core/memory/new_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/memory/kept_memory.h"

namespace weft::core {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
// What one request to the system is for; a larger size has a region of its own.
constexpr uint64_t kRegion = 32 * kHugePage;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Addresses that have memory from when they are written to. What is given back is taken again
// first: matrices on their way into another order would leave holes between those that stay.
class Region {
 public:
  explicit Region(uint64_t size) : mapped_(size + kHugePage) {
    mapping_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check<IoError>(mapping_ != MAP_FAILED, "core.new_memory: no memory for ", size,
                   " bytes; use more ranks, or a machine with more memory");
    const auto start = reinterpret_cast<uintptr_t>(mapping_);
    begin_ = static_cast<std::byte*>(mapping_) + (round_up(start, kHugePage) - start);
    static_cast<void>(::madvise(begin_, size, MADV_HUGEPAGE));
    free_[0] = size;
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { ::munmap(mapping_, mapped_); }

  // Null if no run of free bytes is long enough.
  std::byte* take(uint64_t size) {
    const auto found = std::ranges::find_if(free_, [&](auto& run) { return run.second >= size; });
    if (found == free_.end()) return nullptr;
    const auto [first, length] = *found;
    free_.erase(found);
    if (length > size) free_[first + size] = length - size;
    return begin_ + first;
  }

  // Large pages that are wholly free go back to the system, unless they are kept.
  void give_back(std::byte* bytes, uint64_t size, bool keeps) {
    auto first = static_cast<uint64_t>(bytes - begin_), end = first + size;
    const auto next = free_.lower_bound(first);
    if (next != free_.end() && next->first == end) end += next->second;
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == first) {
      first = std::prev(next)->first;
    }
    free_.erase(free_.lower_bound(first), free_.lower_bound(end));
    free_[first] = end - first;
    if (!keeps) release(first, end);
  }

  // What is free and was kept goes back.
  void release_free() {
    for (const auto& [first, length] : free_) release(first, first + length);
  }

 private:
  // The system gets no part of a large page: what is left of it would be small pages.
  void release(uint64_t first, uint64_t end) {
    const uint64_t whole = round_up(first, kHugePage), whole_end = end / kHugePage * kHugePage;
    if (whole < whole_end) {
      static_cast<void>(::madvise(begin_ + whole, whole_end - whole, MADV_DONTNEED));
    }
  }

  void* mapping_ = nullptr;
  std::byte* begin_ = nullptr;
  uint64_t mapped_;
  // Runs of free bytes, none beside another: first byte and length.
  std::map<uint64_t, uint64_t> free_;
};

// All regions; one lives as long as something in it does, and this as long as a region.
class Regions : public std::enable_shared_from_this<Regions> {
 public:
  std::shared_ptr<std::byte> take(uint64_t size) {
    const std::lock_guard lock(mutex_);
    std::erase_if(regions_, [](const auto& region) { return region.expired(); });
    for (const auto& each : regions_) {
      const auto region = each.lock();
      if (std::byte* bytes = region == nullptr ? nullptr : region->take(size)) {
        return owned(region, bytes, size);
      }
    }
    const auto region = std::make_shared<Region>(std::max(kRegion, round_up(size, kHugePage)));
    regions_.push_back(region);
    if (num_keepers_ > 0) kept_.push_back(region);
    return owned(region, region->take(size), size);
  }

  void keep() {
    const std::lock_guard lock(mutex_);
    ++num_keepers_;
  }
  void stop_keeping() {
    const std::lock_guard lock(mutex_);
    if (--num_keepers_ > 0) return;
    kept_.clear();
    for (const auto& each : regions_) {
      if (const auto region = each.lock()) region->release_free();
    }
  }

 private:
  std::shared_ptr<std::byte> owned(const std::shared_ptr<Region>& region, std::byte* bytes,
                                   uint64_t size) {
    return {bytes, [self = shared_from_this(), region, size](std::byte* taken) {
              const std::lock_guard lock(self->mutex_);
              region->give_back(taken, size, self->num_keepers_ > 0);
            }};
  }

  std::mutex mutex_;
  std::vector<std::weak_ptr<Region>> regions_;
  // Those made while there are keepers, which would go with the last that lies in them.
  std::vector<std::shared_ptr<Region>> kept_;
  int64_t num_keepers_ = 0;
};

const std::shared_ptr<Regions>& all_regions() {
  static const auto regions = std::make_shared<Regions>();
  return regions;
}

}  // namespace

std::shared_ptr<std::byte> new_memory(uint64_t size) {
  constexpr uint64_t kAlignment = 64;
  return all_regions()->take(round_up(std::max<uint64_t>(size, 1), kAlignment));
}

KeptMemory::KeptMemory() { all_regions()->keep(); }

KeptMemory::~KeptMemory() { all_regions()->stop_keeping(); }

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
