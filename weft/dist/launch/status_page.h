#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "weft/core/files/file.h"

namespace weft::dist {

/// The operations that a rank can be in.
enum class OpKind : uint8_t {
  kNone = 0,
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive,
};

/// "all_reduce", "receive" …; "nothing" for kNone.
const char* op_name(OpKind kind);

/// What one rank says of itself, in memory that its launcher and the ranks of its host share.
struct alignas(64) RankStatus {
  static constexpr size_t kGroups = 30;
  static constexpr size_t kGroupNameBytes = 32;
  static constexpr size_t kErrorBytes = 1536;

  std::atomic<int32_t> pid;
  /// Counts up several times a second while the process runs; 0: nobody counts yet.
  std::atomic<uint32_t> beat;
  /// kind (8 bits), done (1), group (15), sequence number (40).
  std::atomic<uint64_t> operation;
  std::atomic<uint32_t> error_length;
  /// The signal that asked it to stop; 0 before.
  std::atomic<int32_t> asked_signal;
  /// Not 0: SIGINT is not a request to end, the rank makes something else of it.
  std::atomic<int32_t> keeps_on;
  /// When the error was left: nanoseconds of this host's steady clock.
  std::atomic<int64_t> error_time;
  /// When a beat last saw that the operation had changed since the one before, by the same clock;
  /// 0: nobody beats yet.
  std::atomic<int64_t> progress_time;
  std::array<char, 64> activity;
  std::array<std::array<char, kGroupNameBytes>, kGroups> group_names;
  std::array<char, kErrorBytes> error;
};

/// Notes that `status`'s rank enters operation `sequence` of group number `group`.
inline void note_operation(RankStatus& status, OpKind kind, uint32_t group, uint64_t sequence) {
  const uint64_t word = (static_cast<uint64_t>(kind) << 56) |
                        (static_cast<uint64_t>(group & 0x7fff) << 40) |
                        (sequence & ((1ULL << 40) - 1));
  status.operation.store(word, std::memory_order_relaxed);
}

/// Notes that the operation noted last has ended.
inline void note_operation_done(RankStatus& status) {
  constexpr uint64_t kDone = 1ULL << 55;
  status.operation.store(status.operation.load(std::memory_order_relaxed) | kDone,
                         std::memory_order_relaxed);
}

/// "during all_reduce #42 of group model", "after …", "during load", or "before its first
/// operation".
std::string describe_operation(const RankStatus& status);

/// One RankStatus for each rank, mapped from a file in memory.
class StatusPage {
 public:
  /// A new page of `num_ranks` in an anonymous memory file (closed on exec).
  /// Throws IoError.
  static StatusPage create(int num_ranks);
  /// The page behind an inherited descriptor. Throws ConfigError if it is no such page.
  static StatusPage attach(core::FileDescriptor fd, int num_ranks);

  StatusPage(StatusPage&& other) noexcept;
  StatusPage& operator=(StatusPage&&) = delete;
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;
  ~StatusPage();

  RankStatus& rank(int rank) const { return ranks_[rank]; }
  int num_ranks() const { return num_ranks_; }
  int fd() const { return fd_.get(); }

 private:
  StatusPage(core::FileDescriptor fd, int num_ranks);

  core::FileDescriptor fd_;
  int num_ranks_;
  RankStatus* ranks_ = nullptr;
};

/// What keeps the ranks of this host from going on: empty while one of them has begun or ended an
/// operation within `limit`. Else for how long none has, and for which ranks the others wait, as
/// those are in no operation or in an older one: "no progress for 12 s: rank 1 (pid 123) after
/// broadcast #17 of group model".
std::string standstill(const StatusPage& page, std::chrono::nanoseconds limit);

/// Number for a group's name in `status`, for note_operation. The table is small; when it is full
/// the last number stands for all further groups.
uint32_t register_group_name(RankStatus& status, std::string_view name);

/// This process's own entry: in the launcher's page if there is one, else in memory of its own.
/// Throws ConfigError where the environment names a page that is none.
RankStatus& own_status();
/// The page that own_status() lives in; null if it is in this process's own memory.
const StatusPage* shared_status_page();

/// Makes `rank`'s entry of `page` this process's own. Does nothing if a page is shared already.
/// Call before other threads use own_status().
void share_status_page(StatusPage page, int rank);

/// Leaves word for the ranks that share its page that `number` has asked this one to stop: one that
/// gets a signal alone waits for the others in its next collective. Safe in a signal handler once
/// own_status() has been called.
void note_asked_signal(int number);

/// The signal that has asked this rank, or else one that shares its page, to stop; 0 if none has.
int asked_signal();

/// Forgets that a signal has asked this rank to stop.
void forget_asked_signal();

/// From now on SIGINT does not end the job for its launcher, which passes it on: this rank goes on
/// after it, and ends the others itself.
void keep_on_after_interrupts();

/// Says in a word what this process does outside of collectives, e.g. "load"; shown when it dies.
void set_activity(std::string_view activity);

/// Leaves `message`, e.g. "weft: ConfigError: …", as this rank's last words. True if it should
/// print them itself; under weft's own launcher that one prints what the ranks agree on, once.
bool should_report(std::string_view message);

/// What should_report left there, or nothing.
std::string last_words(const RankStatus& status);

/// Of the last words that ranks of this host have left, those that were left first, on one line;
/// empty: none has left any. A rank that stood still itself learns from them why the others ended.
std::string first_words();

}  // namespace weft::dist
