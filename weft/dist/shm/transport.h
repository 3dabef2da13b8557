#pragma once

#include <map>
#include <memory>

#include "weft/dist/backends/backends.h"
#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/shm/channel.h"
#include "weft/dist/shm/collectives.h"

namespace weft::dist {

/// Shared memory between the ranks of one host.
class ShmTransport : public BlockTransport {
 public:
  ShmTransport(ShmSegment segment, int rank, std::shared_ptr<GroupMonitor> monitor);

  BlockCollectives& collectives() override { return collectives_; }
  std::function<void()> begin_send(int destination, const Message& message,
                                   const std::byte* data) override;
  void receive(int source, const Message& message, std::byte* data) override;
  int receive_any(const Message& message, std::byte* data) override;
  void give_up(const char* text) override;
  void leave(bool) override {}

 private:
  ShmSegment segment_;
  ShmCollectives collectives_;
  std::map<int, ShmSender> senders_;
  std::map<int, ShmReceiver> receivers_;
};

/// The ranks of `request` get a segment: their rank 0 creates it, announces it in the store, and
/// removes the name as soon as all have mapped it. Collective over them. Throws CommError, IoError.
std::unique_ptr<ShmTransport> make_shm_transport(const GroupRequest& request);

/// Makes a group over shared memory. Collective over the group.
GroupHandles make_shm_group(const GroupRequest& request);

}  // namespace weft::dist
