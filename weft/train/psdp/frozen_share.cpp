#include "weft/train/psdp/frozen_share.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "weft/nn/linear/quantized_linear.h"
#include "weft/shard/split.h"
#include "weft/train/psdp/storage_watch.h"

namespace weft::train {
namespace {

// Every tensor begins on a cache line, and no two ranks' shares have one in common.
constexpr int64_t kAlignment = 64;

int64_t rounded_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Where each tensor lies in the run, in bytes; last the run's length.
std::vector<int64_t> starts_of(const std::vector<at::Tensor>& tensors, int64_t ranks) {
  std::vector<int64_t> starts = {0};
  for (const at::Tensor& tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    starts.push_back(starts.back() + rounded_up(bytes, kAlignment));
  }
  starts.back() = rounded_up(starts.back(), ranks * kAlignment);
  return starts;
}

// What of the tensor, which begins at byte `start` of the run, belongs into `share`.
void copy_part(const at::Tensor& share, const shard::Range& range, const at::Tensor& tensor,
               int64_t start) {
  const at::Tensor bytes = tensor.detach().contiguous().view({-1}).view(at::kByte);
  const int64_t first = std::max(range.start, start);
  const int64_t length = std::min(range.end(), start + bytes.numel()) - first;
  if (length <= 0) return;
  share.narrow(0, first - range.start, length).copy_(bytes.narrow(0, first - start, length));
}

void give_memory_back(const at::Tensor& run) {
  run.storage().set_data_ptr(run.storage().allocator()->allocate(0));
  run.storage().set_nbytes(0);
}

}  // namespace

std::vector<at::Tensor> frozen_tensors(const torch::nn::Module& module) {
  std::vector<at::Tensor> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    const bool is_new = seen.insert(tensor.unsafeGetTensorImpl()).second;
    if (is_new && tensor.numel() > 0) found.push_back(tensor);
  };
  for (const auto& each : module.modules()) {
    for (const at::Tensor& parameter : each->parameters(false)) {
      if (!parameter.requires_grad()) add(parameter);
    }
    if (dynamic_cast<const nn::QuantizedLinearImpl*>(each.get()) == nullptr) continue;
    for (const at::Tensor& part : each->buffers(false)) add(part);
  }
  return found;
}

FrozenShare::FrozenShare(const std::vector<at::Tensor>& tensors, dist::Group data, BufferPool& pool)
    : data_(std::move(data)), pool_(pool) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> starts = starts_of(tensors, data_.size());
  // Memory that nobody writes to is none.
  run_ = at::empty({starts.back()}, at::kByte);
  const int64_t length = starts.back() / data_.size();
  const shard::Range range{data_.rank() * length, length};
  share_ = at::zeros({length}, at::kByte);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor tensor = tensors[i];
    copy_part(share_, range, tensor, starts[i]);
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    tensor.set_data(
        run_.narrow(0, starts[i], bytes).view(tensor.scalar_type()).view(tensor.sizes()));
  }
  give_memory_back(run_);
}

void FrozenShare::fill() { pool_.fill(run_); }

void FrozenShare::begin_gather() { pending_ = data_.begin_all_gather_into(run_, share_); }

void FrozenShare::finish_gather() {
  const auto pending = std::move(pending_);
  if (pending != nullptr) pending->wait();
}

void FrozenShare::drain() { pool_.drain(run_); }

}  // namespace weft::train
