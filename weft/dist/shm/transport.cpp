#include "weft/dist/shm/transport.h"

#include "weft/core/error.h"

namespace weft::dist {

ShmTransport::ShmTransport(ShmSegment segment, int rank, std::shared_ptr<GroupMonitor> monitor)
    : segment_(std::move(segment)), collectives_(segment_, rank, std::move(monitor)) {
  const ShmWaiter& waiter = collectives_.waiter();
  for (int peer = 0; peer < segment_.layout().ranks(); ++peer) {
    if (peer == rank) continue;
    senders_.try_emplace(peer, ShmSender(segment_, rank, peer, waiter));
    receivers_.try_emplace(peer, ShmReceiver(segment_, peer, rank, waiter));
  }
}

std::function<void()> ShmTransport::begin_send(int destination, const Message& message,
                                               const std::byte* data) {
  ShmSender& sender = senders_.at(destination);
  return [&sender, message, data] { sender.send(message, data); };
}

void ShmTransport::receive(int source, const Message& message, std::byte* data) {
  receivers_.at(source).receive(message, data);
}

int ShmTransport::receive_any(const Message&, std::byte*) {
  core::fail<core::ShapeError>(
      "dist.shm: receive: expected a source, got any; name the rank, or use mpi or gloo");
}

void ShmTransport::give_up(const char* text) { collectives_.waiter().abort(text); }

}  // namespace weft::dist
