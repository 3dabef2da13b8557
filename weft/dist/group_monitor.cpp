#include "weft/dist/group_monitor.h"

#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

// Where parts of a group note what nobody reads.
RankStatus& unread_status() {
  static RankStatus status;
  return status;
}

struct End {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
};

}  // namespace

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

GroupMonitor::GroupMonitor(std::string name, std::shared_ptr<const Peers> peers,
                           std::vector<int> world_ranks, std::chrono::milliseconds timeout)
    : name_(std::move(name)),
      peers_(std::move(peers)),
      world_ranks_(std::move(world_ranks)),
      timeout_(timeout),
      status_(&own_status()),
      number_(register_group_name(*status_, name_)) {}

GroupMonitor::GroupMonitor(std::shared_ptr<const GroupMonitor> whole, std::vector<int> world_ranks)
    : name_(whole->name()),
      peers_(whole->peers_),
      world_ranks_(std::move(world_ranks)),
      timeout_(whole->timeout()),
      status_(&unread_status()),
      number_(0),
      whole_(std::move(whole)) {}

GroupMonitor::~GroupMonitor() = default;

std::unique_ptr<PeerWatch> GroupMonitor::watch() const {
  return std::make_unique<PeerWatch>(*peers_, world_ranks_);
}

namespace {
thread_local const CallNumber* current_call = nullptr;
}  // namespace

CallNumber::CallNumber(GroupMonitor* monitor) : outer_(current_call), monitor_(monitor) {
  const bool is_part = outer_ != nullptr && outer_->monitor_ == monitor;
  if (monitor != nullptr) number_ = is_part ? outer_->number_ : monitor->next_call();
  current_call = this;
}

CallNumber::~CallNumber() { current_call = outer_; }

uint64_t CallNumber::current() { return current_call == nullptr ? 0 : current_call->number_; }

std::string GroupMonitor::peer_name(int64_t group_rank) const {
  return peers_->name(world_ranks_[static_cast<size_t>(group_rank)]);
}

// A collective may be made of others, and is known by its own name.
std::string GroupMonitor::where(OpKind kind) const {
  if (whole_ != nullptr) return whole_->where(kind);
  const bool is_message = kind == OpKind::kSend || kind == OpKind::kReceive;
  const OpKind begun = begun_.load(std::memory_order_relaxed);
  if (!is_message && begun != OpKind::kNone) kind = begun;
  return core::join("dist.Group: ", op_name(kind), " #", sequence_, " of group ", name_);
}

void GroupMonitor::wait(c10d::Work& work, OpKind kind) const {
  try {
    if (!work.isCompleted()) watch_until_done(work, kind);
    work.wait();
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    explain(kind, error);
  }
}

// The work's own wait with a time limit throws when the time is over, which takes libtorch a second
// of collecting a stack trace; its future tells the end without that.
void GroupMonitor::watch_until_done(c10d::Work& work, OpKind kind) const {
  const auto end = std::make_shared<End>();
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = work.getFuture();
  } catch (const std::exception&) {
    return;  // Some of libtorch's works can only be waited for.
  }
  future->addCallback([end](c10::ivalue::Future&) {
    const std::lock_guard lock(end->mutex);
    end->reached = true;
    end->changed.notify_all();
  });
  PeerWatch watch(*peers_, world_ranks_);
  std::unique_lock lock(end->mutex);
  while (!end->changed.wait_for(lock, 200ms, [&] { return end->reached; })) {
    if (const auto trouble = watch.trouble()) {
      core::fail<core::CommError>(where(kind), ": ", *trouble);
    }
  }
}

void GroupMonitor::explain(OpKind kind, const std::exception& error) const {
  // A connection breaks a moment before the process that held it is seen to be gone.
  for (int i = 0; i < 100; ++i) {
    if (const std::string verdict = peers_->verdict(); !verdict.empty()) {
      core::fail<core::CommError>(where(kind), ": ", verdict);
    }
    for (const int rank : world_ranks_) {
      if (rank == peers_->own_rank() || !peers_->is_dead(rank)) continue;
      const std::string seen =
          core::join(peers_->name(rank), " was killed or has ended", peers_->last_operation(rank));
      core::fail<core::CommError>(where(kind), ": ", peers_->agree(seen));
    }
    std::this_thread::sleep_for(10ms);
  }
  core::fail<core::CommError>(where(kind), ": ", first_line(error.what()), what_others_do());
}

std::string GroupMonitor::what_others_do() const {
  std::string text;
  for (const int rank : world_ranks_) {
    if (rank == peers_->own_rank()) continue;
    const std::string operation = peers_->last_operation(rank);
    if (!operation.empty()) text += core::join("; ", peers_->name(rank), ":", operation);
  }
  return text;
}

}  // namespace weft::dist
