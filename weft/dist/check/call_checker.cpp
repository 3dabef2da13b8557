#include "weft/dist/check/call_checker.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

thread_local int pass_depth = 0;

// FNV-1a: the same on all machines, which std::hash need not be.
uint64_t hash_of(std::string_view text, uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const char c : text) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace

void CallRecord::write(const Call& call, std::span<uint8_t, kBytes> bytes) {
  const uint64_t hash = hash_of(call.agreed, hash_of("\n", hash_of(op_name(call.kind))));
  std::memcpy(bytes.data(), &hash, sizeof(hash));
  const std::span<uint8_t> room = bytes.subspan(sizeof(hash));
  std::fill(room.begin(), room.end(), uint8_t{0});
  std::copy_n(call.text.begin(), std::min(call.text.size(), room.size() - 1), room.begin());
}

uint64_t CallRecord::agreed_hash(std::span<const uint8_t, kBytes> bytes) {
  uint64_t hash = 0;
  std::memcpy(&hash, bytes.data(), sizeof(hash));
  return hash;
}

std::string_view CallRecord::text(std::span<const uint8_t, kBytes> bytes) {
  const std::span<const uint8_t> room = bytes.subspan(sizeof(uint64_t));
  const auto end = std::find(room.begin(), room.end(), uint8_t{0});
  return {reinterpret_cast<const char*>(room.data()), static_cast<size_t>(end - room.begin())};
}

CallChecker::PassScope::PassScope() { ++pass_depth; }
CallChecker::PassScope::~PassScope() { --pass_depth; }
bool CallChecker::passes() { return pass_depth > 0; }

CallChecker::CallChecker(c10::intrusive_ptr<c10d::Backend> backend,
                         std::shared_ptr<GroupMonitor> monitor)
    : backend_(std::move(backend)), monitor_(std::move(monitor)) {
  constexpr auto kBytes = static_cast<int64_t>(CallRecord::kBytes);
  own_ = at::empty({kBytes}, at::kByte);
  all_ = at::empty({backend_->getSize(), kBytes}, at::kByte);
  slots_ = all_.unbind(0);
}

std::span<const uint8_t, CallRecord::kBytes> CallChecker::record_of(size_t rank) const {
  const uint8_t* start = all_.const_data_ptr<uint8_t>() + rank * CallRecord::kBytes;
  return std::span<const uint8_t, CallRecord::kBytes>(start, CallRecord::kBytes);
}

std::string CallChecker::rank_text(size_t rank) const {
  return core::join("rank ", monitor_->world_ranks()[rank], " called ",
                    CallRecord::text(record_of(rank)));
}

void CallChecker::check(const Call& call) {
  ++sequence_;
  Call shown = call;
  shown.text =
      core::join(op_name(call.kind), " #", sequence_, call.text.empty() ? "" : " ", call.text);
  CallRecord::write(shown, std::span<uint8_t, CallRecord::kBytes>(own_.mutable_data_ptr<uint8_t>(),
                                                                  CallRecord::kBytes));
  std::vector<std::vector<at::Tensor>> outputs = {slots_};
  std::vector<at::Tensor> inputs = {own_};
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  monitor_->wait(*backend_->allgather(outputs, inputs, options), call.kind);
  const uint64_t first = CallRecord::agreed_hash(record_of(0));
  for (size_t r = 1; r < slots_.size(); ++r) {
    core::check<core::CommError>(
        CallRecord::agreed_hash(record_of(r)) == first, "dist.Group: group ", monitor_->name(),
        ": ", rank_text(0), ", ", rank_text(r),
        "; all ranks must call the same collectives in the same order with fitting shapes");
  }
  if (!call.gives.empty()) check_pairs(call);
}

// All ranks are in an all-to-all by now, so that they exchange as much again.
void CallChecker::check_pairs(const Call& call) {
  const size_t n = slots_.size();
  std::vector<int64_t> own = call.gives;
  own.insert(own.end(), call.takes.begin(), call.takes.end());
  own.resize(2 * n);
  const auto length = static_cast<int64_t>(own.size());
  std::vector<at::Tensor> inputs = {at::tensor(own, at::kLong)};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (size_t r = 0; r < n; ++r) outputs[0].push_back(at::empty({length}, at::kLong));
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  monitor_->wait(*backend_->allgather(outputs, inputs, options), call.kind);
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      const int64_t given = outputs[0][from].const_data_ptr<int64_t>()[to];
      const int64_t taken = outputs[0][to].const_data_ptr<int64_t>()[n + from];
      core::check<core::CommError>(given == taken, "dist.Group: group ", monitor_->name(), ": ",
                                   rank_text(from), ", ", rank_text(to), "; the first gives ",
                                   given, " elements and the second expects ", taken,
                                   "; give both the same");
    }
  }
}

void CallChecker::check_after_queue(const Call& call) {
  queue_.drain();
  check(call);
}

}  // namespace weft::dist
