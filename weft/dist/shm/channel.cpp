#include "weft/dist/shm/channel.h"

#include <algorithm>
#include <cstring>

#include "weft/core/error.h"

namespace weft::dist {

ShmSender::ShmSender(ShmSegment& segment, int from, int to, const ShmWaiter& waiter)
    : channel_(segment.channel(from, to)),
      ring_(segment.channel_data(from, to)),
      capacity_(segment.layout().channel_bytes()),
      to_(to),
      waiter_(waiter) {}

void ShmSender::send(const Message& message, const std::byte* data) {
  write(reinterpret_cast<const std::byte*>(&message), sizeof(message));
  write(data, message.bytes);
}

void ShmSender::write(const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    // Room for one byte at least; then take what there is up to the ring's end.
    if (written_ + 1 > capacity_)
      waiter_.wait(channel_.read, written_ + 1 - capacity_, OpKind::kSend, to_);
    const uint64_t taken = channel_.read.value.load(std::memory_order_acquire);
    const size_t at = written_ % capacity_;
    const size_t room = std::min(capacity_ - (written_ - taken), capacity_ - at);
    const size_t length = std::min(room, bytes);
    std::memcpy(ring_ + at, data, length);
    written_ += length;
    data += length;
    bytes -= length;
    ShmWaiter::advance(channel_.written, written_);
  }
}

ShmReceiver::ShmReceiver(ShmSegment& segment, int from, int to, const ShmWaiter& waiter)
    : channel_(segment.channel(from, to)),
      ring_(segment.channel_data(from, to)),
      capacity_(segment.layout().channel_bytes()),
      from_(from),
      waiter_(waiter) {}

void ShmReceiver::receive(const Message& message, std::byte* data) {
  const auto same_tag = [&](const Kept& kept) { return kept.message.tag == message.tag; };
  const auto known = std::find_if(kept_.begin(), kept_.end(), same_tag);
  if (known != kept_.end()) {
    check(message, known->message);
    std::copy(known->data.begin(), known->data.end(), data);
    kept_.erase(known);
    return;
  }
  while (true) {
    Message got;
    read(reinterpret_cast<std::byte*>(&got), sizeof(got));
    if (got.tag == message.tag) {
      check(message, got);
      return read(data, message.bytes);
    }
    kept_.push_back({got, std::vector<std::byte>(got.bytes)});
    read(kept_.back().data.data(), got.bytes);
  }
}

void ShmReceiver::read(std::byte* data, size_t bytes) {
  while (bytes > 0) {
    waiter_.wait(channel_.written, read_ + 1, OpKind::kReceive, from_);
    const uint64_t there = channel_.written.value.load(std::memory_order_acquire);
    const size_t at = read_ % capacity_;
    const size_t length = std::min({there - read_, capacity_ - at, bytes});
    std::memcpy(data, ring_ + at, length);
    read_ += length;
    data += length;
    bytes -= length;
    ShmWaiter::advance(channel_.read, read_);
  }
}

void ShmReceiver::check(const Message& expected, const Message& got) const {
  if (expected.bytes == got.bytes && expected.dtype == got.dtype) return;
  const auto name = [](int32_t dtype) {
    return c10::toString(static_cast<c10::ScalarType>(dtype));
  };
  const GroupMonitor& monitor = waiter_.monitor();
  core::fail<core::CommError>(monitor.where(OpKind::kReceive), ": expected ", expected.bytes,
                              " bytes of ", name(expected.dtype), ", but ",
                              monitor.peer_name(from_), " sent ", got.bytes, " bytes of ",
                              name(got.dtype), "; give both the same shape and type");
}

}  // namespace weft::dist
