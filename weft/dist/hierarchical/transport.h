#pragma once

#include <map>
#include <memory>

#include "weft/dist/backends/backends.h"
#include "weft/dist/hierarchical/collectives.h"

namespace weft::dist {

class ShmTransport;

/// A group on several hosts: shared memory inside each, another backend between them. Messages
/// between ranks of one host go through shared memory, too.
class HierarchicalTransport : public BlockTransport {
 public:
  /// `all` are all ranks of the group on the backend for messages between hosts; `inside` is null
  /// where this rank is alone on its host.
  HierarchicalTransport(HostPlaces places, std::unique_ptr<ShmTransport> inside, Group between,
                        Group all, std::shared_ptr<GroupMonitor> monitor);
  ~HierarchicalTransport() override;

  BlockCollectives& collectives() override { return collectives_; }
  std::function<void()> begin_send(int destination, const Message& message,
                                   const std::byte* data) override;
  void receive(int source, const Message& message, std::byte* data) override;
  int receive_any(const Message& message, std::byte* data) override;
  void give_up(const char* text) override;
  void leave(bool) override {}

 private:
  bool is_near(int rank) const { return places_.host_of(rank) == places_.own_host; }
  void receive_far(int source, const Message& message, std::byte* data);

  HostPlaces places_;
  std::unique_ptr<ShmTransport> inside_;
  Group all_;
  std::shared_ptr<GroupMonitor> monitor_;
  HierarchicalCollectives collectives_;
};

/// Makes a group whose ranks are on several hosts. Where the group turns out to be on one host it
/// is a group over shared memory, and where every rank is alone on its host one over the network.
/// Collective over the group. Throws CommError, IoError.
GroupHandles make_hierarchical_group(const GroupRequest& request);

}  // namespace weft::dist
