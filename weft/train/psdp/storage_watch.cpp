#include "weft/train/psdp/storage_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <memory>
#include <unordered_map>
#include <utility>

namespace weft::train {
namespace {

using Watched = std::unordered_map<const c10::StorageImpl*, std::function<void()>>;

// libtorch's callbacks are plain functions, so what they look at is the process's.
Watched& watched() {
  static Watched table;
  return table;
}

at::CallbackHandle& handle() {
  static at::CallbackHandle value = at::INVALID_CALLBACK_HANDLE;
  return value;
}

void look_at(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  const auto found =
      watched().find(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  if (found != watched().end()) found->second();
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

std::unique_ptr<at::ObserverContext> before_operation(const at::RecordFunction& operation) {
  thread_local bool is_looking = false;
  if (is_looking) return nullptr;
  is_looking = true;
  look_at_inputs(operation);
  is_looking = false;
  return nullptr;
}

}  // namespace

StorageWatch::StorageWatch(const c10::StorageImpl* storage, std::function<void()> before_use)
    : storage_(storage) {
  if (watched().empty()) {
    handle() = at::addGlobalCallback(at::RecordFunctionCallback(before_operation)
                                         .needsInputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
  }
  watched()[storage] = std::move(before_use);
}

StorageWatch::~StorageWatch() {
  watched().erase(storage_);
  if (watched().empty()) at::removeCallback(handle());
}

}  // namespace weft::train
