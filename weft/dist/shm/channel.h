#pragma once

#include <cstddef>
#include <list>
#include <vector>

#include "weft/dist/shm/collectives.h"

namespace weft::dist {

/// The sending end of one direction between two ranks. Used by one thread at a time.
class ShmSender {
 public:
  ShmSender(ShmSegment& segment, int from, int to, const ShmWaiter& waiter);

  /// Returns when all of `data` is in the channel or taken out of it. Throws CommError.
  void send(const Message& message, const std::byte* data);

 private:
  void write(const std::byte* data, size_t bytes);

  ShmChannel& channel_;
  std::byte* ring_;
  size_t capacity_;
  int to_;
  const ShmWaiter& waiter_;
  uint64_t written_ = 0;
};

/// The receiving end. Used by one thread at a time.
class ShmReceiver {
 public:
  ShmReceiver(ShmSegment& segment, int from, int to, const ShmWaiter& waiter);

  /// Waits for the next message with `message`'s tag; earlier ones with other tags are kept for
  /// later. Throws CommError if it is not what `message` says.
  void receive(const Message& message, std::byte* data);

 private:
  struct Kept {
    Message message;
    std::vector<std::byte> data;
  };

  void read(std::byte* data, size_t bytes);
  void check(const Message& expected, const Message& got) const;

  ShmChannel& channel_;
  const std::byte* ring_;
  size_t capacity_;
  int from_;
  const ShmWaiter& waiter_;
  uint64_t read_ = 0;
  std::list<Kept> kept_;
};

}  // namespace weft::dist
