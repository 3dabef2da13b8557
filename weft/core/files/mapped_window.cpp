#include "weft/core/files/mapped_window.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include "weft/core/error.h"

namespace weft::core {
namespace {

// A page that the file no longer has, or the disk does not yield, comes as the signal SIGBUS to the
// thread that reads it. While a thread copies, its place to return to is here; volatile, because
// the handler's reading is nothing that the compiler sees.
thread_local sigjmp_buf* volatile return_point = nullptr;
struct sigaction former_action = {};

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  if (return_point != nullptr) siglongjmp(*return_point, 1);
  // Not ours: what would have happened without us happens when the instruction runs again, or, if
  // another process sent the signal, when it comes again.
  ::sigaction(SIGBUS, &former_action, nullptr);
  if (info->si_code <= 0) ::raise(signal);
}

void watch_bus_errors() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    sigemptyset(&action.sa_mask);
    // Without SA_NODEFER the signal would stay blocked after the jump.
    action.sa_flags = SA_NODEFER | SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &former_action);
  });
}

// Processors fetch ahead within a page; the next run lies in another one.
void fetch_start(const std::byte* from, uint64_t num_bytes) {
  constexpr uint64_t kLine = 64, kMost = 8 * kLine;
  for (uint64_t at = 0; at < std::min(num_bytes, kMost); at += kLine) __builtin_prefetch(from + at);
}

uint64_t page_size() {
  static const auto size = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// Whether a byte can be had without a disk.
bool is_cached(int descriptor, uint64_t offset) {
  std::byte byte{};
  const iovec place = {&byte, 1};
  return ::preadv2(descriptor, &place, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

// Looks at some of the copies only: a system call for each would cost as much as making it.
bool are_cached(int descriptor, uint64_t start, std::span<const MappedWindow::Copy> copies) {
  constexpr size_t kLooks = 8;
  const size_t step = std::max<size_t>(1, (copies.size() - 1) / (kLooks - 1));
  for (size_t i = 0; i < copies.size(); i += step) {
    if (!is_cached(descriptor, start + copies[i].offset)) return false;
  }
  return is_cached(descriptor, start + copies.back().offset + copies.back().num_bytes - 1);
}

// Has the system begin to read the pages that hold the copies, all at once and no others. What it
// returns changes nothing: a page that is missing is read when it is touched.
void fetch_pages(int descriptor, uint64_t start, std::span<const MappedWindow::Copy> copies) {
  const auto fetch = [&](uint64_t first, uint64_t end) {
    static_cast<void>(::posix_fadvise(descriptor, static_cast<off_t>(first),
                                      static_cast<off_t>(end - first), POSIX_FADV_WILLNEED));
  };
  const uint64_t page = page_size();
  uint64_t first = 0, end = 0;
  for (const MappedWindow::Copy& each : copies) {
    if (each.num_bytes == 0) continue;
    const uint64_t from = (start + each.offset) / page * page;
    const uint64_t to = (start + each.offset + each.num_bytes + page - 1) / page * page;
    // Copies come in the order of the file as far as it pays; others only cost a call more.
    if (end > 0 && from >= first && from <= end) {
      end = std::max(end, to);
      continue;
    }
    if (end > 0) fetch(first, end);
    first = from;
    end = to;
  }
  if (end > 0) fetch(first, end);
}

// Whether all bytes were there. Nothing in it needs a destructor, which a jump would skip.
bool copy_watched(const std::byte* from, std::span<const MappedWindow::Copy> copies) {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    return_point = nullptr;
    return false;
  }
  return_point = &here;
  for (size_t i = 0; i < copies.size(); ++i) {
    const MappedWindow::Copy& each = copies[i];
    if (i + 1 < copies.size()) fetch_start(from + copies[i + 1].offset, copies[i + 1].num_bytes);
    std::memcpy(each.to, from + each.offset, each.num_bytes);
  }
  return_point = nullptr;
  return true;
}

}  // namespace

MappedWindow::MappedWindow(const File& file, uint64_t offset, uint64_t num_bytes)
    : file_(file), offset_(offset), num_bytes_(num_bytes) {
  const bool is_inside = num_bytes <= file.size() && offset <= file.size() - num_bytes;
  check<InternalError>(is_inside && num_bytes > 0, "core.MappedWindow: ", num_bytes,
                       " bytes at byte ", offset, " of ", file.path());
  skipped_ = offset % page_size();
  mapping_ = ::mmap(nullptr, skipped_ + num_bytes, PROT_READ, MAP_SHARED, file.descriptor(),
                    static_cast<off_t>(offset - skipped_));
  if (mapping_ == MAP_FAILED) fail_errno(file.path(), "cannot map", errno);
  // Or the system would read pages around each that it waits for.
  static_cast<void>(::madvise(mapping_, skipped_ + num_bytes, MADV_RANDOM));
  watch_bus_errors();
}

MappedWindow::~MappedWindow() { ::munmap(mapping_, skipped_ + num_bytes_); }

void MappedWindow::copy(std::span<const Copy> copies) const {
  if (!copies.empty() && !are_cached(file_.descriptor(), offset_, copies)) {
    fetch_pages(file_.descriptor(), offset_, copies);
  }
  const bool is_whole = copy_watched(static_cast<const std::byte*>(mapping_) + skipped_, copies);
  // What is cut off within a page reads as zeros.
  struct stat info = {};
  if (::fstat(file_.descriptor(), &info) != 0) fail_errno(file_.path(), "cannot stat", errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  check<FormatError>(size >= offset_ + num_bytes_, file_.path(), ": truncated: need ", num_bytes_,
                     " bytes at byte ", offset_, ", the file ends at byte ", size);
  check<IoError>(is_whole, file_.path(), ": cannot read at byte ", offset_,
                 ": the system did not yield it; check the disk");
}

}  // namespace weft::core
