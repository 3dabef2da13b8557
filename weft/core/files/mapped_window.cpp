#include "weft/core/files/mapped_window.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  skipped_ = offset % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  mapping_ = ::mmap(nullptr, skipped_ + num_bytes, PROT_READ, MAP_SHARED, file.descriptor(),
                    static_cast<off_t>(offset - skipped_));
  if (mapping_ == MAP_FAILED) fail_errno(file.path(), "cannot map", errno);
  watch_bus_errors();
}

MappedWindow::~MappedWindow() { ::munmap(mapping_, skipped_ + num_bytes_); }

void MappedWindow::copy(std::span<const Copy> copies) const {
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
