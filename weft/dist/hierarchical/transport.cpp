#include "weft/dist/hierarchical/transport.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/core/error.h"
#include "weft/dist/shm/transport.h"

namespace weft::dist {
namespace {

std::vector<at::Tensor> bytes_at(const void* data, size_t bytes) {
  const auto length = static_cast<int64_t>(bytes);
  return {at::from_blob(const_cast<void*>(data), {length}, at::kByte)};
}

// c10d's errors in weft's words.
template <class Function>
void explained(const GroupMonitor& monitor, OpKind kind, Function&& function) {
  try {
    function();
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    monitor.explain(kind, error);
  }
}

}  // namespace

HierarchicalTransport::HierarchicalTransport(HostPlaces places,
                                             std::unique_ptr<ShmTransport> inside, Group between,
                                             Group all, std::shared_ptr<GroupMonitor> monitor)
    : places_(std::move(places)),
      inside_(std::move(inside)),
      all_(std::move(all)),
      monitor_(std::move(monitor)),
      collectives_({places_, inside_.get(), std::move(between)}) {}

HierarchicalTransport::~HierarchicalTransport() = default;

std::function<void()> HierarchicalTransport::begin_send(int destination, const Message& message,
                                                        const std::byte* data) {
  if (is_near(destination)) {
    return inside_->begin_send(places_.index_of(destination), message, data);
  }
  struct Begun {
    Message head;
    std::vector<at::Tensor> head_bytes;
    std::vector<at::Tensor> body;
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
  };
  const auto begun = std::make_shared<Begun>();
  begun->head = message;
  begun->head_bytes = bytes_at(&begun->head, sizeof(Message));
  begun->body = bytes_at(data, message.bytes);
  explained(*monitor_, OpKind::kSend, [&] {
    const auto& group = all_.process_group();
    begun->works.push_back(group->send(begun->head_bytes, destination, message.tag));
    if (message.bytes != 0) {
      begun->works.push_back(group->send(begun->body, destination, message.tag));
    }
  });
  return [begun, monitor = monitor_] {
    explained(*monitor, OpKind::kSend, [&] {
      for (const auto& work : begun->works) monitor->wait(*work, OpKind::kSend);
    });
  };
}

void HierarchicalTransport::receive(int source, const Message& message, std::byte* data) {
  if (is_near(source)) return inside_->receive(places_.index_of(source), message, data);
  explained(*monitor_, OpKind::kReceive, [&] { receive_far(source, message, data); });
}

void HierarchicalTransport::receive_far(int source, const Message& message, std::byte* data) {
  Message got;
  const auto take = [&](std::vector<at::Tensor> into) {
    monitor_->wait(*all_.process_group()->recv(into, source, message.tag), OpKind::kReceive);
  };
  take(bytes_at(&got, sizeof(got)));
  core::check<core::CommError>(got.bytes == message.bytes && got.dtype == message.dtype,
                               monitor_->where(OpKind::kReceive), ": expected ", message.bytes,
                               " bytes of ",
                               c10::toString(static_cast<c10::ScalarType>(message.dtype)), ", but ",
                               monitor_->peer_name(source), " sent ", got.bytes, " bytes of ",
                               c10::toString(static_cast<c10::ScalarType>(got.dtype)),
                               "; give both the same shape and type");
  if (message.bytes != 0) take(bytes_at(data, message.bytes));
}

int HierarchicalTransport::receive_any(const Message&, std::byte*) {
  core::fail<core::ShapeError>(
      "dist.hierarchical: receive: expected a source, got any; name the rank, or use mpi or gloo");
}

void HierarchicalTransport::give_up(const char* text) {
  if (inside_ != nullptr) inside_->give_up(text);
}

}  // namespace weft::dist
