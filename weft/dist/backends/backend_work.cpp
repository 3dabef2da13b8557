#include "weft/dist/backends/backend_work.h"

namespace weft::dist {

BackendWork::BackendWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs)
    : Work(rank, type), outputs_(std::move(outputs)) {}

void BackendWork::complete(std::exception_ptr error) {
  finish(error);
  const std::lock_guard lock(future_mutex_);
  if (future_) fulfil();
}

// Made only when asked for: most callers wait on the work itself.
c10::intrusive_ptr<c10::ivalue::Future> BackendWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (!future_) {
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (isCompleted()) fulfil();
  }
  return future_;
}

void BackendWork::fulfil() {
  if (future_->completed()) return;
  if (const auto error = exception()) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(outputs_));
  }
}

}  // namespace weft::dist
