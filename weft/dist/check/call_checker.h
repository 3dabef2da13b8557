#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "weft/dist/backends/work_queue.h"
#include "weft/dist/check/call.h"
#include "weft/dist/group_monitor.h"

namespace weft::dist {

/// What of a call crosses the wire: always the same number of bytes, so that the exchange itself
/// fits whatever the ranks call.
class CallRecord {
 public:
  static constexpr size_t kBytes = 384;

  /// Writes `call` to `bytes`: a hash of what must agree, and the words, cut where they are too
  /// long.
  static void write(const Call& call, std::span<uint8_t, kBytes> bytes);
  /// What write has left there.
  static uint64_t agreed_hash(std::span<const uint8_t, kBytes> bytes);
  static std::string_view text(std::span<const uint8_t, kBytes> bytes);
};

/// Compares what the ranks of a group are about to call before they do: WEFT_CHECK_COLLECTIVES.
/// Each collective begins with an all-gather of a CallRecord.
class CallChecker {
 public:
  /// `backend` carries the records as well as the collectives.
  CallChecker(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<GroupMonitor> monitor);

  /// Compares `call` with the other ranks'. Collective. Throws CommError on all ranks, in the same
  /// words, naming the first two that differ.
  void check(const Call& call);
  /// The same once everything that is queued has run: from the caller's thread.
  void check_after_queue(const Call& call);

  /// Runs what asynchronous calls have left to do, in the order in which they were made.
  WorkQueue& queue() { return queue_; }
  const GroupMonitor& monitor() const { return *monitor_; }

  /// While one lives, calls of this thread pass unchecked: they are parts of one that was compared.
  class PassScope {
   public:
    PassScope();
    PassScope(const PassScope&) = delete;
    PassScope& operator=(const PassScope&) = delete;
    ~PassScope();
  };
  /// True within a PassScope of this thread.
  static bool passes();

 private:
  std::span<const uint8_t, CallRecord::kBytes> record_of(size_t rank) const;
  std::string rank_text(size_t rank) const;
  void check_pairs(const Call& call);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<GroupMonitor> monitor_;
  uint64_t sequence_ = 0;
  at::Tensor own_;
  at::Tensor all_;
  std::vector<at::Tensor> slots_;
  // Ends first: what it runs uses the rest.
  WorkQueue queue_;
};

}  // namespace weft::dist
