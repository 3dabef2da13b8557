#include "weft/dist/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/launch/process.h"

namespace weft::dist {
namespace {

using core::CommError;
using core::fail;
using core::FileDescriptor;

constexpr uint64_t kMagic = 0x314d485354464557ULL;  // "WEFTSHM1"
constexpr uint32_t kVersion = 2;
constexpr const char* kShm = "dist.shm: ";
// Where Linux keeps it; see shm_overview(7).
constexpr const char* kFolder = "/dev/shm";

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Ranks that have not come yet, a creator that has died, or somebody else's memory.
enum class Existing { kInUse, kStale, kGone };

struct Found {
  Existing state = Existing::kInUse;
  int32_t pid = 0;
};

Found inspect(const std::string& name) {
  FileDescriptor fd(shm_open(name.c_str(), O_RDONLY | O_CLOEXEC, 0));
  if (!fd.is_open()) return {errno == ENOENT ? Existing::kGone : Existing::kInUse, 0};
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || info.st_uid != geteuid()) return {};
  if (info.st_size < static_cast<off_t>(sizeof(ShmHeader))) return {};
  void* memory = mmap(nullptr, sizeof(ShmHeader), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return {};
  const auto* header = static_cast<const ShmHeader*>(memory);
  Found found;
  if (header->magic.load(std::memory_order_acquire) == kMagic) {
    found.pid = header->creator_pid;
    const bool lives = process_start_time(header->creator_pid) == header->creator_start;
    found.state = lives ? Existing::kInUse : Existing::kStale;
  }
  munmap(memory, sizeof(ShmHeader));
  return found;
}

[[noreturn]] void fail_in_use(const std::string& name, const Found& found) {
  const std::string owner =
      found.pid != 0 ? core::join("process ", found.pid) : std::string("another program");
  fail<CommError>(kShm, "shared memory ", name, " is in use by ", owner,
                  "; end that job, or remove /dev/shm", name, " if nobody needs it");
}

FileDescriptor create_exclusive(const std::string& name) {
  constexpr int kTries = 3;
  Found found;
  for (int i = 0; i < kTries; ++i) {
    FileDescriptor fd(shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (fd.is_open()) return fd;
    if (errno != EEXIST) core::fail_errno("dist.shm", "shm_open " + name, errno);
    found = inspect(name);
    if (found.state == Existing::kInUse) break;
    if (found.state == Existing::kStale) shm_unlink(name.c_str());
  }
  fail_in_use(name, found);
}

std::byte* map_all(const FileDescriptor& fd, size_t bytes, const std::string& name) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) core::fail_errno("dist.shm", "mmap " + name, errno);
  return static_cast<std::byte*>(memory);
}

}  // namespace

ShmLayout::ShmLayout(int ranks) : ranks_(ranks) {
  constexpr size_t kPage = 4096;
  constexpr size_t kSlotBytes = 256 << 10;
  const auto n = static_cast<size_t>(ranks);
  slot_bytes_ = kSlotBytes;
  part_bytes_ = round_up(kSlotBytes / n + 64, kPage);
  channel_bytes_ = n <= 4 ? 256 << 10 : 64 << 10;
  slots_ = round_up(sizeof(ShmHeader) + 2 * n * sizeof(ShmLine), kPage);
  parts_ = slots_ + 2 * n * slot_bytes_;
  channels_ = parts_ + 2 * n * part_bytes_;
  total_ = channels_ + n * n * (sizeof(ShmChannel) + channel_bytes_);
}

size_t ShmLayout::line_offset(int rank, uint64_t step) const {
  return sizeof(ShmHeader) + (2 * static_cast<size_t>(rank) + step % 2) * sizeof(ShmLine);
}

size_t ShmLayout::slot_offset(int rank, uint64_t step) const {
  return slots_ + (2 * static_cast<size_t>(rank) + step % 2) * slot_bytes_;
}

size_t ShmLayout::part_offset(int rank, uint64_t step) const {
  return parts_ + (2 * static_cast<size_t>(rank) + step % 2) * part_bytes_;
}

size_t ShmLayout::channel_offset(int from, int to) const {
  const size_t index =
      static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to);
  return channels_ + index * (sizeof(ShmChannel) + channel_bytes_);
}

ShmSegment ShmSegment::create(const std::string& name, const ShmLayout& layout) {
  FileDescriptor fd = create_exclusive(name);
  try {
    return make(std::move(fd), layout, name);
  } catch (const core::Error&) {
    shm_unlink(name.c_str());
    throw;
  }
}

std::optional<ShmSegment> ShmSegment::create_unnamed(const ShmLayout& layout) {
  FileDescriptor fd(::open(kFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.is_open()) return std::nullopt;
  return make(std::move(fd), layout, "");
}

// Of memory that was made just now; the name is for messages.
ShmSegment ShmSegment::make(FileDescriptor fd, const ShmLayout& layout, const std::string& name) {
  // Taken now: memory that turns out to be missing later would end the process with SIGBUS.
  const int error = posix_fallocate(fd.get(), 0, static_cast<off_t>(layout.total_bytes()));
  if (error != 0) {
    core::fail_errno("dist.shm",
                     core::join(kFolder, name, ": ", layout.total_bytes(),
                                " bytes (make /dev/shm larger, or use the backend gloo)"),
                     error);
  }
  ShmSegment segment(layout, map_all(fd, layout.total_bytes(), name));
  segment.fd_ = std::move(fd);
  ShmHeader& header = segment.header();
  header.version = kVersion;
  header.ranks = layout.ranks();
  header.creator_pid = getpid();
  header.creator_start = process_start_time(getpid());
  header.magic.store(kMagic, std::memory_order_release);
  return segment;
}

std::string ShmSegment::handle() const {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) core::fail_errno("dist.shm", "fstat", errno);
  return core::join(getpid(), " ", fd_.get(), " ", info.st_dev, " ", info.st_ino);
}

std::optional<ShmSegment> ShmSegment::open_handle(const std::string& handle,
                                                  const ShmLayout& layout) {
  std::istringstream text(handle);
  pid_t pid = 0;
  int number = -1;
  uint64_t device = 0, inode = 0;
  if (!(text >> pid >> number >> device >> inode)) return std::nullopt;
  const FileDescriptor fd = open_descriptor_of(pid, number, device, inode);
  if (!fd.is_open()) return std::nullopt;
  return map(fd, layout, core::join("/proc/", pid, "/fd/", number));
}

void ShmSegment::link(const std::string& name) const {
  const std::string own = core::join("/proc/self/fd/", fd_.get());
  const std::string path = kFolder + name;
  if (linkat(AT_FDCWD, own.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) return;
  if (errno == EEXIST) fail_in_use(name, inspect(name));
  core::fail_errno("dist.shm", "linkat " + path, errno);
}

ShmSegment ShmSegment::open(const std::string& name, const ShmLayout& layout) {
  const FileDescriptor fd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  core::check<CommError>(fd.is_open(), kShm, "shared memory ", name,
                         ": rank 0 has made it, but here it is not: ", std::strerror(errno),
                         "; are the ranks in one container?");
  return map(fd, layout, name);
}

ShmSegment ShmSegment::map(const FileDescriptor& fd, const ShmLayout& layout,
                           const std::string& name) {
  struct stat info {};
  const bool fits =
      fstat(fd.get(), &info) == 0 && info.st_size == static_cast<off_t>(layout.total_bytes());
  core::check<CommError>(fits, kShm, "shared memory ", name, ": expected ", layout.total_bytes(),
                         " bytes, got ", info.st_size, "; start all ranks with the same program");
  ShmSegment segment(layout, map_all(fd, layout.total_bytes(), name));
  const ShmHeader& header = segment.header();
  core::check<CommError>(header.magic.load(std::memory_order_acquire) == kMagic &&
                             header.version == kVersion && header.ranks == layout.ranks(),
                         kShm, "shared memory ", name,
                         " is of another build; start all ranks with the same program");
  return segment;
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : layout_(other.layout_),
      base_(std::exchange(other.base_, nullptr)),
      fd_(std::move(other.fd_)) {}

ShmSegment::~ShmSegment() {
  if (base_ != nullptr) munmap(base_, layout_.total_bytes());
}

ShmLine& ShmSegment::line(int rank, uint64_t step) const {
  return *reinterpret_cast<ShmLine*>(base_ + layout_.line_offset(rank, step));
}

ShmChannel& ShmSegment::channel(int from, int to) const {
  return *reinterpret_cast<ShmChannel*>(base_ + layout_.channel_offset(from, to));
}

std::byte* ShmSegment::channel_data(int from, int to) const {
  return base_ + layout_.channel_offset(from, to) + sizeof(ShmChannel);
}

}  // namespace weft::dist
