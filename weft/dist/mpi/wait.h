#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "weft/dist/mpi/api.h"
#include "weft/dist/mpi/runtime.h"

namespace weft::dist {

/// Waiting for MPI's nonblocking operations with an eye on the peers.
class MpiWaiter {
 public:
  MpiWaiter(MpiRuntime& runtime, std::shared_ptr<GroupMonitor> monitor);

  MpiRuntime& runtime() const { return runtime_; }
  const GroupMonitor& monitor() const { return *monitor_; }

  /// Returns when all `requests` are done; `statuses` are theirs, or empty. Spins first, then
  /// sleeps between looks. `kind` is what messages name. Throws CommError when a peer of the group
  /// is gone or silent, when MPI says so, when the group was cancelled, or after its timeout.
  void wait(std::span<MPI_Request> requests, OpKind kind,
            std::span<MPI_Status> statuses = {}) const;
  /// The same for messages to or from `peer`, its rank in the group: no other is looked after.
  void wait_for(int peer, std::span<MPI_Request> requests, OpKind kind) const;
  /// Begins an operation by calling `function`, and throws CommError if MPI refuses.
  template <class Function>
  void begin(OpKind kind, Function&& function) const {
    runtime_.check_usable();
    int code = MPI_SUCCESS;
    {
      const auto entered = runtime_.enter();
      code = function();
    }
    if (code != MPI_SUCCESS) give_up(kind, mpi_error_text(code));
  }
  /// Ends all waits of this group, and MPI's use with them.
  void cancel() { cancelled_.store(true); }
  /// Notes the failure for the whole process and throws it as CommError.
  [[noreturn]] void give_up(OpKind kind, const std::string& text) const;

 private:
  bool test(std::span<MPI_Request> requests, OpKind kind, std::span<MPI_Status> statuses) const;
  void wait_long(const std::function<bool()>& done, OpKind kind, int peer) const;
  void wait_watching(std::span<MPI_Request> requests, OpKind kind, std::span<MPI_Status> statuses,
                     int peer) const;
  void look_after_peers(PeerWatch& watch, const std::function<bool()>& done, OpKind kind) const;

  MpiRuntime& runtime_;
  std::shared_ptr<GroupMonitor> monitor_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace weft::dist
