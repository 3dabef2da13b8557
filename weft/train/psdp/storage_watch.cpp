#include "weft/train/psdp/storage_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>

namespace weft::train {
namespace {

struct Watch {
  std::function<void()> before_use;
  std::thread::id owner;
};
using Watched = std::unordered_map<const c10::StorageImpl*, Watch>;

// libtorch's callbacks are plain functions, so what they look at is the process's.
Watched& watched() {
  static Watched table;
  return table;
}

at::CallbackHandle& handle() {
  static at::CallbackHandle value = at::INVALID_CALLBACK_HANDLE;
  return value;
}

// The owner's own operations, and those of backward, wherever it runs: threads that carry out
// collectives also touch the storages, as part of a gather.
bool is_computing(const Watch& watch) {
  return std::this_thread::get_id() == watch.owner ||
         torch::autograd::get_current_node() != nullptr;
}

void look_at(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const auto found =
      watched().find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  if (found != watched().end() && is_computing(found->second)) found->second.before_use();
}

void look_at_inputs(const at::RecordFunction& operation) {
  for (const c10::IValue& input : operation.inputs()) {
    if (input.isTensor()) {
      look_at(input.toTensor());
    } else if (input.isTensorList()) {
      for (const at::Tensor& each : input.toTensorVector()) look_at(each);
    }
  }
}

thread_local bool is_paused = false;

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& operation) {
  if (is_paused) return nullptr;
  const WatchPause pause;
  look_at_inputs(operation);
  return nullptr;
}

}  // namespace

WatchPause::WatchPause() : was_paused_(std::exchange(is_paused, true)) {}

WatchPause::~WatchPause() { is_paused = was_paused_; }

StorageWatch::StorageWatch(const c10::StorageImpl* storage, std::function<void()> before_use)
    : storage_(storage) {
  if (watched().empty()) {
    handle() = at::addGlobalCallback(at::RecordFunctionCallback(before_operation)
                                         .needsInputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
  }
  watched()[storage] = {std::move(before_use), std::this_thread::get_id()};
}

StorageWatch::~StorageWatch() {
  watched().erase(storage_);
  if (watched().empty()) at::removeCallback(handle());
}

}  // namespace weft::train
