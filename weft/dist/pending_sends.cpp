#include "weft/dist/pending_sends.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace weft::dist {

void PendingSends::add(int64_t destination, c10::intrusive_ptr<c10d::Work> work,
                       const at::Tensor& message) {
  if (work->isCompleted()) {
    work->wait();
    return;
  }
  queues_[destination].push([this, work = std::move(work), message] {
    try {
      work->wait();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  });
}

void PendingSends::rethrow_error() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace weft::dist
