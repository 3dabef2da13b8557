#include "weft/dist/group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/group_handles.h"
#include "weft/dist/check/call.h"
#include "weft/dist/group_calls.h"
#include "weft/dist/group_tensors.h"
#include "weft/dist/pending_sends.h"
#include "weft/shard/split.h"

namespace weft::dist {
namespace {

using core::check;
using core::ShapeError;

int64_t checked_dim(const char* where, const at::Tensor& x, int64_t dim) {
  check<ShapeError>(x.dim() > 0, where, ": expected a tensor with dimensions, got a scalar");
  check<ShapeError>(dim >= -x.dim() && dim < x.dim(), where, ": expected a dim from ", -x.dim(),
                    " to ", x.dim() - 1, ", got ", dim);
  return dim < 0 ? dim + x.dim() : dim;
}

void check_sizes(const char* where, const std::vector<int64_t>& sizes, int64_t ranks) {
  check<ShapeError>(static_cast<int64_t>(sizes.size()) == ranks, where, ": expected ", ranks,
                    " sizes, one per rank, got ", sizes.size());
  for (const int64_t size : sizes) {
    check<ShapeError>(size >= 0, where, ": expected sizes >= 0, got ", core::list_text(sizes));
  }
}

// What all ranks' parts take together.
uint64_t bytes_along(const at::Tensor& part, int64_t dim, const std::vector<int64_t>& lengths) {
  const int64_t length = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  uint64_t bytes = part.element_size() * static_cast<uint64_t>(length);
  for (int64_t d = 0; d < part.dim(); ++d) {
    if (d != dim) bytes *= static_cast<uint64_t>(part.size(d));
  }
  return bytes;
}

// What a group of one has.
const std::shared_ptr<const GroupHandles>& no_handles() {
  static const auto none = std::make_shared<const GroupHandles>();
  return none;
}

bool is_integral(const at::Tensor& x) { return c10::isIntegralType(x.scalar_type(), true); }

}  // namespace

Group::Group() : handles_(no_handles()) {}

Group::Group(std::string name, GroupHandles handles, std::shared_ptr<GroupMonitor> monitor,
             std::shared_ptr<CallChecker> checker)
    : name_(std::move(name)),
      rank_(handles.process_group ? handles.process_group->getRank() : 0),
      size_(handles.process_group ? handles.process_group->getSize() : 1),
      handles_(std::make_shared<const GroupHandles>(std::move(handles))),
      monitor_(std::move(monitor)),
      checker_(std::move(checker)),
      pending_sends_(std::make_shared<PendingSends>()) {}

const c10::intrusive_ptr<c10d::ProcessGroup>& Group::process_group() const {
  return handles_->process_group;
}

const Capabilities& Group::capabilities(const at::Tensor& x) const {
  return x.is_cpu() ? handles_->cpu : handles_->cuda;
}

bool Group::shares_memory() const { return handles_->cpu.shared_memory; }

// A backend may wait in its destructor for what it has begun, and a peer that is gone never ends
// it: after an error its memory is given up, so that the error can be told.
void Group::abandon() const {
  if (!handles_->cpu.waits_in_destructor && !handles_->cuda.waits_in_destructor) return;
  c10::intrusive_ptr<c10d::ProcessGroup>(process_group()).release();
  pending_sends_->keep_forever(pending_sends_);
}

void Group::all_reduce(at::Tensor& x, ReduceOp op) const {
  const CallNumber number(monitor_.get());
  constexpr const char* kWhere = "dist.Group.all_reduce";
  check<ShapeError>(op != ReduceOp::kAverage || !is_integral(x), kWhere,
                    ": expected a floating type for an average, got ", x.scalar_type(),
                    "; sum and divide as you mean it");
  check<ShapeError>(op != ReduceOp::kSum || x.scalar_type() != at::kBool, kWhere,
                    ": expected numbers for a sum, got Bool; use kMax (any) or kMin (all)");
  if (size_ == 1) return;
  const at::NoGradGuard no_grad;
  if (!x.is_contiguous()) {
    at::Tensor dense = x.contiguous();
    all_reduce(dense, op);
    x.copy_(dense);
    return;
  }
  const auto describe = [&] {
    return call_of(OpKind::kAllReduce, core::join(tensor_text(x), ' ', reduce_text(op)));
  };
  traffic_->all_reduce.add(x.nbytes());
  run_collective(OpKind::kAllReduce, describe, [&] {
    if (handles_->inline_collectives != nullptr && x.is_cpu()) {
      handles_->inline_collectives->all_reduce_inline(x, op);
    } else {
      reduce_dense(x, op, OpKind::kAllReduce);
    }
    return true;
  });
}

// In a wider type where the backend would round at each step or lacks the type, a piece at a time
// to bound the memory for it.
void Group::reduce_dense(at::Tensor& x, ReduceOp op, OpKind kind) const {
  const at::ScalarType type = type_to_reduce_in(x.scalar_type(), op, capabilities(x));
  if (type == x.scalar_type()) return reduce_by_backend(x, op, kind);
  constexpr int64_t kPiece = int64_t{1} << 20;
  const at::Tensor flat = x.view({-1});
  for (int64_t start = 0; start < flat.numel(); start += kPiece) {
    const at::Tensor piece = flat.narrow(0, start, std::min(kPiece, flat.numel() - start));
    at::Tensor wide = piece.to(type);
    reduce_by_backend(wide, op, kind);
    piece.copy_(wide);
  }
}

void Group::reduce_by_backend(at::Tensor& x, ReduceOp op, OpKind kind) const {
  std::vector<at::Tensor> tensors = {x};
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  wait_for(monitor_.get(), kind, process_group()->allreduce(tensors, options));
  if (op == ReduceOp::kAverage) x.div_(size_);
}

at::Tensor Group::all_gather(const at::Tensor& shard, int64_t dim,
                             const std::vector<int64_t>& sizes) const {
  const CallNumber number(monitor_.get());
  constexpr const char* kWhere = "dist.Group.all_gather";
  dim = checked_dim(kWhere, shard, dim);
  if (size_ == 1) return shard.detach().clone(at::MemoryFormat::Contiguous);
  if (!sizes.empty()) {
    check_sizes(kWhere, sizes, size_);
    check<ShapeError>(sizes[static_cast<size_t>(rank_)] == shard.size(dim), kWhere,
                      ": expected this rank's size in sizes ", core::list_text(sizes),
                      " to be its shard's, got shape ", shard.sizes());
  }
  const at::NoGradGuard no_grad;
  const auto describe = [&] { return gather_call(shard, dim, sizes); };
  return run_collective(OpKind::kAllGather, describe, [&] {
    const std::vector<int64_t> lengths = sizes.empty() ? exchange_sizes(shard.size(dim)) : sizes;
    traffic_->all_gather.add(bytes_along(shard, dim, lengths));
    const std::vector<at::Tensor> parts = gather_parts(shard.movedim(dim, 0).contiguous(), lengths);
    std::vector<at::Tensor> turned;
    for (const at::Tensor& part : parts) turned.push_back(part.movedim(0, dim));
    return at::cat(turned, dim);
  });
}

// All ranks' parts, which differ along dimension 0 at most.
std::vector<at::Tensor> Group::gather_parts(const at::Tensor& shard,
                                            const std::vector<int64_t>& sizes) const {
  if (const auto type = type_to_move_as(shard.scalar_type(), capabilities(shard))) {
    std::vector<at::Tensor> parts = gather_parts(shard.view(*type), sizes);
    for (at::Tensor& part : parts) part = part.view(shard.scalar_type());
    return parts;
  }
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  const bool pad = !capabilities(shard).unequal_pieces;
  std::vector<at::Tensor> input = {pad ? pad_to(shard, longest) : shard};
  std::vector<std::vector<at::Tensor>> outputs(1);
  auto shape = shard.sizes().vec();
  for (const int64_t size : sizes) {
    shape[0] = pad ? longest : size;
    outputs[0].push_back(at::empty(shape, shard.options()));
  }
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  wait_for(monitor_.get(), OpKind::kAllGather, process_group()->allgather(outputs, input, options));
  for (size_t i = 0; i < sizes.size(); ++i) {
    outputs[0][i] = outputs[0][i].narrow(0, 0, sizes[i]);
  }
  return outputs[0];
}

// Part of an operation.
std::vector<int64_t> Group::exchange_sizes(int64_t own) const {
  const at::Tensor mine = at::full({1}, own, at::kLong);
  std::vector<int64_t> sizes;
  for (const at::Tensor& theirs :
       gather_parts(mine, std::vector<int64_t>(static_cast<size_t>(size_), 1))) {
    sizes.push_back(theirs.item<int64_t>());
  }
  return sizes;
}

at::Tensor Group::reduce_scatter(const at::Tensor& x, int64_t dim,
                                 const std::vector<int64_t>& sizes) const {
  const CallNumber number(monitor_.get());
  constexpr const char* kWhere = "dist.Group.reduce_scatter";
  dim = checked_dim(kWhere, x, dim);
  if (size_ == 1) return x.detach().clone(at::MemoryFormat::Contiguous);
  std::vector<int64_t> lengths = sizes;
  if (lengths.empty()) {
    for (int64_t r = 0; r < size_; ++r) {
      lengths.push_back(shard::part(x.size(dim), size_, r).length);
    }
  }
  check_sizes(kWhere, lengths, size_);
  check<ShapeError>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == x.size(dim),
                    kWhere, ": expected sizes that sum to ", x.size(dim), ", got ",
                    core::list_text(lengths));
  check<ShapeError>(x.scalar_type() != at::kBool, kWhere, ": expected numbers for a sum, got Bool");
  const at::NoGradGuard no_grad;
  const auto describe = [&] {
    return call_of(OpKind::kReduceScatter, core::join(tensor_text(x), " sum along dim ", dim,
                                                      " to ", core::list_text(lengths)));
  };
  traffic_->reduce_scatter.add(x.nbytes());
  return run_collective(OpKind::kReduceScatter, describe,
                        [&] { return scatter_sum(x, dim, lengths); });
}

void Group::broadcast(at::Tensor& x, int64_t root) const {
  const CallNumber number(monitor_.get());
  check<ShapeError>(root >= 0 && root < size_, "dist.Group.broadcast: expected a root below ",
                    size_, ", got ", root);
  if (size_ == 1) return;
  const at::NoGradGuard no_grad;
  const auto describe = [&] {
    return call_of(OpKind::kBroadcast, core::join(tensor_text(x), " root ", root));
  };
  traffic_->broadcast.add(x.nbytes());
  run_collective(OpKind::kBroadcast, describe, [&] {
    at::Tensor dense = x.contiguous();
    if (handles_->inline_collectives != nullptr && x.is_cpu()) {
      handles_->inline_collectives->broadcast_inline(dense, root);
      if (rank_ != root && !dense.is_same(x)) x.copy_(dense);
      return true;
    }
    const auto type = type_to_move_as(x.scalar_type(), capabilities(x));
    std::vector<at::Tensor> tensors = {type ? dense.view(*type) : dense};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.asyncOp = false;
    wait_for(monitor_.get(), OpKind::kBroadcast, process_group()->broadcast(tensors, options));
    if (rank_ != root && !dense.is_same(x)) x.copy_(dense);
    return true;
  });
}

void Group::send(const at::Tensor& x, int64_t destination) const {
  check_peer("dist.Group.send", destination);
  const at::NoGradGuard no_grad;
  traffic_->send.add(x.nbytes());
  run_operation(OpKind::kSend, [&] {
    std::vector<at::Tensor> copy = {x.detach().clone(at::MemoryFormat::Contiguous)};
    pending_sends_->rethrow_error();
    pending_sends_->add(destination, process_group()->send(copy, static_cast<int>(destination), 0),
                        copy[0]);
    return true;
  });
}

void Group::receive(at::Tensor& x, int64_t source) const {
  check_peer("dist.Group.receive", source);
  const at::NoGradGuard no_grad;
  run_operation(OpKind::kReceive, [&] {
    std::vector<at::Tensor> dense = {x.contiguous()};
    process_group()->recv(dense, static_cast<int>(source), 0)->wait();
    if (!dense[0].is_same(x)) x.copy_(dense[0]);
    return true;
  });
}

void Group::check_peer(const char* where, int64_t peer) const {
  check<ShapeError>(peer >= 0 && peer < size_ && peer != rank_, where,
                    ": expected another rank of group ", name_, " below ", size_, ", got ", peer);
}

void Group::barrier() const {
  const CallNumber number(monitor_.get());
  if (size_ == 1) return;
  run_collective(
      OpKind::kBarrier, [] { return call_of(OpKind::kBarrier, ""); },
      [&] {
        c10d::BarrierOptions options;
        options.asyncOp = false;
        wait_for(monitor_.get(), OpKind::kBarrier, process_group()->barrier(options));
        return true;
      });
}

void Group::check_agreement(const std::string& what, const std::string& text) const {
  const CallNumber number(monitor_.get());
  if (size_ == 1) return;
  const auto length = static_cast<int64_t>(text.size());
  at::Tensor bytes = at::empty({length}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  const auto describe = [&] {
    return call_of(OpKind::kAllGather, core::join("to agree on the ", what));
  };
  const auto texts = run_collective(OpKind::kAllGather, describe,
                                    [&] { return gather_parts(bytes, exchange_sizes(length)); });
  bool agree = true;
  std::string table;
  for (size_t r = 0; r < texts.size(); ++r) {
    constexpr size_t kShown = 200;
    const std::string_view theirs(reinterpret_cast<const char*>(texts[r].const_data_ptr<uint8_t>()),
                                  static_cast<size_t>(texts[r].numel()));
    agree = agree && theirs == text;
    table +=
        core::join(table.empty() ? "" : ", ", "rank ", r, ": '", theirs.substr(0, kShown), "'");
  }
  check<core::CommError>(agree, "dist.Group: ", what, ": the ranks of group ", name_,
                         " disagree: ", table, "; give all of them the same");
}

}  // namespace weft::dist
