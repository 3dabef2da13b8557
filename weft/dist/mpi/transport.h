#pragma once

#include <memory>

#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/mpi/api.h"
#include "weft/dist/mpi/collectives.h"
#include "weft/dist/mpi/wait.h"

namespace weft::dist {

/// A communicator of MPI that is freed with it.
class MpiCommunicator {
 public:
  /// The communicator of the ranks `world_ranks`, of which this process is one; `tag` tells it from
  /// others that are made at the same time. Collective over these ranks only.
  /// Throws CommError.
  MpiCommunicator(MpiRuntime& runtime, std::span<const int> world_ranks, int tag);
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator();

  MPI_Comm get() const { return comm_; }
  /// It is not freed: operations of it have not come to their end.
  void keep() { kept_ = true; }

 private:
  MpiRuntime& runtime_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool kept_ = false;
};

/// A group's ranks over MPI. Collectives and messages have a communicator each.
class MpiTransport : public BlockTransport {
 public:
  /// Collective over the group. `tag` as for MpiCommunicator, and the next number too.
  MpiTransport(MpiRuntime& runtime, std::shared_ptr<GroupMonitor> monitor, int tag);

  BlockCollectives& collectives() override { return collectives_; }
  std::function<void()> begin_send(int destination, const Message& message,
                                   const std::byte* data) override;
  void receive(int source, const Message& message, std::byte* data) override;
  int receive_any(const Message& message, std::byte* data) override;
  void give_up(const char* text) override;
  void leave(bool in_error) override;

 private:
  void receive_body(int source, const Message& message, const Message& got, std::byte* data);

  MpiWaiter waiter_;
  MpiCommunicator collective_comm_;
  MpiCommunicator message_comm_;
  MpiCollectives collectives_;
};

}  // namespace weft::dist
