#include "weft/io/new_memory.h"

#include <sys/mman.h>

#include <cstdint>

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

void clear(const std::stop_token& stop, std::span<std::byte> pages) {
  for (size_t at = 0; at < pages.size() && !stop.stop_requested(); at += kHugePage) {
    // Where the system doesn't know the request the pages are cleared when they are written.
    if (::madvise(pages.data() + at, kHugePage, MADV_POPULATE_WRITE) != 0) return;
  }
}

}  // namespace

void prefer_huge_pages(std::span<std::byte> memory) {
  const auto pages = huge_pages(memory);
  if (!pages.empty()) static_cast<void>(::madvise(pages.data(), pages.size(), MADV_HUGEPAGE));
}

PageClearer::PageClearer(std::span<std::byte> memory) {
  // What the reader fills before the thread has started, and what makes one worthwhile.
  constexpr size_t kHeadStart = kHugePage;
  constexpr size_t kWorthwhile = 3 * kHugePage;
  const auto pages = huge_pages(memory);
  if (pages.size() < kWorthwhile) return;
  const auto ahead = pages.subspan(kHeadStart);
  thread_ = std::jthread([ahead](const std::stop_token& stop) { clear(stop, ahead); });
}

}  // namespace weft::io
