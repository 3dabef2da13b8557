#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/dist/backends/group_handles.h"
#include "weft/dist/backends/names.h"
#include "weft/dist/group_monitor.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace weft::dist {

/// What a backend needs to make one group. The store's keys are the group's own.
struct GroupRequest {
  const RankInfo& info;
  c10::intrusive_ptr<c10d::Store> store;
  std::shared_ptr<GroupMonitor> monitor;
  /// This process's rank in the group, and the group's size.
  int rank = 0;
  int size = 1;
  /// Tells it from the job's other groups, e.g. "3-0".
  std::string id;
  std::chrono::milliseconds start_timeout{};
  /// Which ranks on several hosts prove to each other; empty: none.
  std::string job_key = {};
};

/// One row of the table of backends: how this build makes a group on it.
struct BackendRow {
  BackendId id;
  const char* name;
  GroupHandles (*make)(const GroupRequest& request);
  /// Why `info`'s ranks cannot use it; empty if they can.
  std::string (*why_not)(const RankInfo& info);
  /// True if `auto` takes it when the ranks can use it.
  bool (*is_automatic)(const RankInfo& info);
  /// True if it goes over the network alone, on any hosts.
  bool is_plain = false;
};

/// All backends of this build, in the order in which `auto` tries them: that of known_backends.
std::span<const BackendRow> backend_table();

/// The row named `name`, or the first that can serve `info` for "auto". Throws ConfigError, listing
/// the names, if there is none or the ranks cannot use it.
const BackendRow& find_backend(const std::string& name, const RankInfo& info);

/// A group over the network alone, on the first row that is for that and automatic: mpi where
/// mpirun has started the ranks and this build has it, else gloo.
GroupHandles make_plain_group(const GroupRequest& request);

/// A c10d process group for CPU tensors around one backend, which c10d knows as `type`.
c10::intrusive_ptr<c10d::ProcessGroup> wrap_backend(const GroupRequest& request,
                                                    c10d::ProcessGroup::BackendType type,
                                                    c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace weft::dist
