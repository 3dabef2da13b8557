#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "weft/core/files/file.h"

namespace weft::dist {

/// A counter in shared memory that only grows, and how many wait for it asleep.
struct ShmCounter {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> sleepers;
  /// 1 + the processor that its owner last ran on; 0: not known.
  std::atomic<int32_t> processor;
};

/// What a rank says of the operation that it has entered, so that the others can compare.
struct ShmOperation {
  uint8_t kind = 0;
  uint8_t reduce = 0;
  int8_t dtype = 0;
  /// 1 if the pieces that are dealt out are all of one length.
  uint8_t even = 0;
  uint32_t root = 0;
  /// Elements, and chunks that the rank has to move; the most of all ranks counts.
  uint64_t count = 0;
  uint64_t chunks = 0;
  /// CallNumber::current(); 0: not known.
  uint64_t number = 0;
};

/// One rank's step: its counter and what it does share a cache line, so that one transfer tells
/// both.
struct alignas(128) ShmLine {
  ShmCounter step;
  ShmOperation operation;
};

/// One direction between two ranks: a ring of bytes.
struct ShmChannel {
  alignas(128) ShmCounter written;
  alignas(128) ShmCounter read;
};

/// The first bytes of a segment.
struct alignas(4096) ShmHeader {
  std::atomic<uint64_t> magic;
  uint32_t version;
  int32_t ranks;
  int32_t creator_pid;
  uint64_t creator_start;
  std::atomic<int32_t> mapped;
  /// 0; 1 while the text is written; 2 once all ranks must give up.
  std::atomic<uint32_t> aborted;
  std::array<char, 1024> abort_text;
};

/// Where things lie in the segment of a group of `ranks`.
class ShmLayout {
 public:
  explicit ShmLayout(int ranks);

  int ranks() const { return ranks_; }
  size_t total_bytes() const { return total_; }
  /// Bytes that one rank can show the others in one step.
  size_t slot_bytes() const { return slot_bytes_; }
  /// Bytes of a reduced part that one rank can show the others in one step.
  size_t part_bytes() const { return part_bytes_; }
  /// Bytes that one direction between two ranks holds.
  size_t channel_bytes() const { return channel_bytes_; }

  size_t line_offset(int rank, uint64_t step) const;
  size_t slot_offset(int rank, uint64_t step) const;
  size_t part_offset(int rank, uint64_t step) const;
  size_t channel_offset(int from, int to) const;

 private:
  int ranks_;
  size_t slot_bytes_;
  size_t part_bytes_;
  size_t channel_bytes_;
  size_t slots_;
  size_t parts_;
  size_t channels_;
  size_t total_;
};

/// A mapped POSIX shared-memory segment.
class ShmSegment {
 public:
  /// Makes a segment without a name, of which nothing is left however its processes end. None where
  /// /dev/shm has no such files. Throws IoError (no space).
  static std::optional<ShmSegment> create_unnamed(const ShmLayout& layout);
  /// Where other processes find it until the handle is closed.
  std::string handle() const;
  /// Maps the segment that a process of this user has made. None if that process is not seen from
  /// here, or is another than the one that wrote `handle`. Throws as open.
  static std::optional<ShmSegment> open_handle(const std::string& handle, const ShmLayout& layout);
  /// Gives it a name, for processes that open_handle does not help. Throws as create.
  void link(const std::string& name) const;
  void close_handle() { fd_.reset(); }

  /// Makes the segment `name` for `layout`. A segment of that name that a dead process of this user
  /// has left is removed first. Throws CommError if the name is in use, IoError (no space).
  static ShmSegment create(const std::string& name, const ShmLayout& layout);
  /// Maps the segment that another rank has made. Throws CommError if it is not there or of
  /// another build.
  static ShmSegment open(const std::string& name, const ShmLayout& layout);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;
  ~ShmSegment();

  const ShmLayout& layout() const { return layout_; }
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(base_); }
  ShmLine& line(int rank, uint64_t step) const;
  std::byte* slot(int rank, uint64_t step) const { return base_ + layout_.slot_offset(rank, step); }
  std::byte* part(int rank, uint64_t step) const { return base_ + layout_.part_offset(rank, step); }
  ShmChannel& channel(int from, int to) const;
  std::byte* channel_data(int from, int to) const;

 private:
  ShmSegment(const ShmLayout& layout, std::byte* base) : layout_(layout), base_(base) {}

  static ShmSegment make(core::FileDescriptor fd, const ShmLayout& layout, const std::string& name);
  static ShmSegment map(const core::FileDescriptor& fd, const ShmLayout& layout,
                        const std::string& name);

  ShmLayout layout_;
  std::byte* base_ = nullptr;
  /// Open in the process that made it.
  core::FileDescriptor fd_;
};

}  // namespace weft::dist
