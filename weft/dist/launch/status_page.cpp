#include "weft/dist/launch/status_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "weft/core/error.h"
#include "weft/core/terminal/printable.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

constexpr uint64_t kDoneBit = 1ULL << 55;
constexpr char kStatusFd[] = "dist.status_page: WEFT_STATUS_FD: ";

// What a rank's word of its operation says.
struct Operation {
  explicit Operation(const RankStatus& status) {
    const uint64_t word = status.operation.load(std::memory_order_relaxed);
    is_waiting = word != 0 && (word & kDoneBit) == 0;
    group = word >> 40 & 0x7fff;
    sequence = word & ((1ULL << 40) - 1);
  }
  bool is_waiting;
  uint64_t group, sequence;
};

size_t page_bytes(int num_ranks) { return sizeof(RankStatus) * static_cast<size_t>(num_ranks); }

template <size_t N>
void copy_text(std::array<char, N>& to, std::string_view text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = '\0';
}

template <size_t N>
std::string read_text(const std::array<char, N>& from) {
  return {from.data(), strnlen(from.data(), N)};
}

// Where this process writes its own status.
struct OwnPage {
  std::unique_ptr<StatusPage> shared;
  /// Plain memory, which no limit refuses to a program that has nothing to share.
  std::unique_ptr<RankStatus> alone;
  int rank = 0;
  /// The page came from weft's launcher, which reports for all ranks.
  bool has_launcher = false;
};

constexpr char kWrongDescriptor[] =
    " bytes from `weft launch` of the same version, kept open by what stands between; unset it "
    "otherwise";

// The descriptor that the launcher names. It is never one of the standard streams, which this
// process would lose with it.
core::FileDescriptor inherited_page(std::string_view text, int num_ranks) {
  int number = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && stop == text.data() + text.size();
  check<ConfigError>(is_whole && number > STDERR_FILENO, kStatusFd, "expected a descriptor of ",
                     page_bytes(num_ranks), kWrongDescriptor);
  fcntl(number, F_SETFD, FD_CLOEXEC);
  return core::FileDescriptor(number);
}

OwnPage open_own_page() {
  OwnPage own;
  const char* text = std::getenv("WEFT_STATUS_FD");
  if (text != nullptr) {
    const RankInfo info = rank_info_from_env();
    core::FileDescriptor fd = inherited_page(text, info.size);
    own.shared = std::make_unique<StatusPage>(StatusPage::attach(std::move(fd), info.size));
    own.rank = info.rank;
    own.has_launcher = true;
    // A process that this one starts is no rank and must not write here.
    unsetenv("WEFT_STATUS_FD");
  } else {
    own.alone = std::make_unique<RankStatus>();
  }
  return own;
}

OwnPage& own_page() {
  static OwnPage own = open_own_page();
  return own;
}

}  // namespace

const char* op_name(OpKind kind) {
  constexpr std::array<const char*, 12> kNames = {
      "nothing", "all_reduce",     "reduce",     "broadcast", "all_gather", "gather",
      "scatter", "reduce_scatter", "all_to_all", "barrier",   "send",       "receive"};
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "an unknown operation";
}

std::string describe_operation(const RankStatus& status) {
  const uint64_t word = status.operation.load(std::memory_order_relaxed);
  const auto kind = static_cast<OpKind>(word >> 56);
  const std::string activity = read_text(status.activity);
  const bool done = (word & kDoneBit) != 0;
  if ((kind == OpKind::kNone || done) && !activity.empty()) return "during " + activity;
  if (kind == OpKind::kNone) return "before its first operation";
  const auto group = static_cast<size_t>((word >> 40) & 0x7fff);
  std::string text =
      core::join(done ? "after " : "during ", op_name(kind), " #", word & ((1ULL << 40) - 1));
  if (group < RankStatus::kGroups) text += " of group " + read_text(status.group_names[group]);
  return text;
}

std::string standstill(const StatusPage& page, std::chrono::nanoseconds limit) {
  int64_t last = 0;
  // The newest operation that a rank waits in, of each group.
  std::map<uint64_t, uint64_t> newest;
  for (int rank = 0; rank < page.num_ranks(); ++rank) {
    const RankStatus& status = page.rank(rank);
    last = std::max(last, status.progress_time.load(std::memory_order_relaxed));
    const Operation now(status);
    if (now.is_waiting) newest[now.group] = std::max(newest[now.group], now.sequence);
  }
  const std::chrono::nanoseconds now = std::chrono::steady_clock::now().time_since_epoch();
  const std::chrono::nanoseconds still = now - std::chrono::nanoseconds(last);
  if (last == 0 || still < limit) return {};
  std::string all, waited_for;
  for (int rank = 0; rank < page.num_ranks(); ++rank) {
    const RankStatus& status = page.rank(rank);
    // Ranks of other hosts have pages of their own.
    if (status.progress_time.load(std::memory_order_relaxed) == 0) continue;
    const std::string words =
        core::join("rank ", rank, " (pid ", status.pid.load(std::memory_order_relaxed), ") ",
                   describe_operation(status));
    const auto add_to = [&](std::string& list) { list += (list.empty() ? "" : ", ") + words; };
    add_to(all);
    const Operation own(status);
    if (!own.is_waiting || own.sequence != newest[own.group]) add_to(waited_for);
  }
  return core::join("no progress for ",
                    std::chrono::duration_cast<std::chrono::seconds>(still).count(),
                    " s: ", waited_for.empty() ? all : waited_for);
}

StatusPage::StatusPage(core::FileDescriptor fd, int num_ranks)
    : fd_(std::move(fd)), num_ranks_(num_ranks) {
  void* memory =
      mmap(nullptr, page_bytes(num_ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) core::fail_errno("dist.status_page", "mmap", errno);
  ranks_ = static_cast<RankStatus*>(memory);
}

StatusPage StatusPage::create(int num_ranks) {
  core::FileDescriptor fd(memfd_create("weft-status", MFD_CLOEXEC));
  if (!fd.is_open()) core::fail_errno("dist.status_page", "memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(page_bytes(num_ranks))) != 0) {
    core::fail_errno("dist.status_page", "ftruncate", errno);
  }
  return {std::move(fd), num_ranks};
}

StatusPage StatusPage::attach(core::FileDescriptor fd, int num_ranks) {
  struct stat info {};
  const bool fits =
      fstat(fd.get(), &info) == 0 && info.st_size == static_cast<off_t>(page_bytes(num_ranks));
  check<ConfigError>(fits, kStatusFd, "expected a descriptor of ", page_bytes(num_ranks),
                     kWrongDescriptor);
  return {std::move(fd), num_ranks};
}

StatusPage::StatusPage(StatusPage&& other) noexcept
    : fd_(std::move(other.fd_)), num_ranks_(other.num_ranks_), ranks_(other.ranks_) {
  other.ranks_ = nullptr;
}

StatusPage::~StatusPage() {
  if (ranks_ != nullptr) munmap(ranks_, page_bytes(num_ranks_));
}

uint32_t register_group_name(RankStatus& status, std::string_view name) {
  const uint32_t last = RankStatus::kGroups - 1;
  for (uint32_t i = 0; i < last; ++i) {
    const std::string known = read_text(status.group_names[i]);
    if (known.empty()) copy_text(status.group_names[i], name);
    if (known.empty() || known == name) return i;
  }
  copy_text(status.group_names[last], "(others)");
  return last;
}

RankStatus& own_status() {
  OwnPage& own = own_page();
  return own.shared ? own.shared->rank(own.rank) : *own.alone;
}

const StatusPage* shared_status_page() { return own_page().shared.get(); }

void share_status_page(StatusPage page, int rank) {
  OwnPage& own = own_page();
  if (own.shared != nullptr) return;
  own.rank = rank;
  own.shared = std::make_unique<StatusPage>(std::move(page));
}

void note_asked_signal(int number) { own_status().asked_signal.store(number); }

void forget_asked_signal() { own_status().asked_signal.store(0); }

void keep_on_after_interrupts() { own_status().keeps_on.store(1); }

int asked_signal() {
  if (const int own = own_status().asked_signal.load(std::memory_order_relaxed)) return own;
  const StatusPage* page = shared_status_page();
  for (int rank = 0; page != nullptr && rank < page->num_ranks(); ++rank) {
    if (const int asked = page->rank(rank).asked_signal.load(std::memory_order_relaxed))
      return asked;
  }
  return 0;
}

void set_activity(std::string_view activity) { copy_text(own_status().activity, activity); }

bool should_report(std::string_view message) {
  const OwnPage* own = nullptr;
  try {
    own = &own_page();
  } catch (const core::Error&) {
    // Whoever started this process gave it no page that it can use, which is what it reports.
    return true;
  }
  RankStatus& status = own_status();
  copy_text(status.error, message);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  status.error_time.store(std::chrono::nanoseconds(now).count(), std::memory_order_relaxed);
  const size_t length = std::min(message.size(), RankStatus::kErrorBytes - 1);
  status.error_length.store(static_cast<uint32_t>(length), std::memory_order_release);
  return !own->has_launcher;
}

std::string last_words(const RankStatus& status) {
  const uint32_t length = status.error_length.load(std::memory_order_acquire);
  return {status.error.data(), std::min<size_t>(length, RankStatus::kErrorBytes)};
}

std::string first_words() {
  const StatusPage* const page = shared_status_page();
  std::string first;
  int64_t time = INT64_MAX;
  for (int rank = 0; page != nullptr && rank < page->num_ranks(); ++rank) {
    const RankStatus& status = page->rank(rank);
    std::string words = last_words(status);
    const int64_t left = status.error_time.load(std::memory_order_relaxed);
    if (words.empty() || left >= time) continue;
    time = left;
    first = core::printable(words);
  }
  return first;
}

}  // namespace weft::dist
