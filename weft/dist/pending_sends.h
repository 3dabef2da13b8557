#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include "weft/dist/backends/work_queue.h"

namespace c10d {
class Work;
}

namespace weft::dist {

/// Messages on their way: waits for them in the background and keeps their memory until then.
class PendingSends {
 public:
  /// `message` is what `work` sends to `destination`.
  void add(int64_t destination, c10::intrusive_ptr<c10d::Work> work, const at::Tensor& message);
  /// Throws what an earlier message has met.
  void rethrow_error();
  /// Never ends the waiting: for messages that will never be taken, whose wait cannot be broken
  /// off.
  void keep_forever(std::shared_ptr<PendingSends> self) { self_ = std::move(self); }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  std::map<int64_t, WorkQueue> queues_;
  std::shared_ptr<PendingSends> self_;
};

}  // namespace weft::dist
