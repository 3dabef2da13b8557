#include "weft/dist/backends/backends.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/thread.h"
#include "weft/dist/backends/data_proof.h"
#include "weft/dist/backends/mpi_group.h"
#include "weft/dist/gloo_threads.h"
#include "weft/dist/hierarchical/transport.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/shm/transport.h"
#ifdef WEFT_HAS_NCCL
#include "weft/dist/nccl/group.h"
#endif

namespace weft::dist {
namespace {

std::string always(const RankInfo&) { return ""; }
bool automatic(const RankInfo&) { return true; }

// It adds halves in half precision, reduces neither flags nor int16, and its own reduce-scatter is
// an all-reduce, too.
Capabilities gloo_can() {
  Capabilities can;
  can.rounds_halves_often = true;
  can.waits_in_destructor = true;
  can.reduces = {at::kChar, at::kByte,     at::kInt,   at::kLong,
                 at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  can.moves = {at::kChar, at::kByte,     at::kBool,  at::kInt,   at::kLong,
               at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  return can;
}

GroupHandles make_gloo(const GroupRequest& request) {
  explain_ends_of_gloo_threads();
  constexpr int kOfDevice = 1, kOfGroup = 1;
  core::check_can_start_threads("dist.World: Gloo", kOfDevice + kOfGroup);
  // While the ranks connect; later each operation has the group's own limit.
  auto options = c10d::ProcessGroupGloo::Options::create(request.start_timeout);
  // Of several, libtorch ends the process where the system allows only the first.
  options->threads = kOfGroup;
  try {
    // On one host nothing may listen beyond loopback; across hosts Gloo listens where the others
    // see this one.
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(own_address(request.info)));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank,
                                                               request.size, options);
    if (!request.info.single_host()) {
      const std::string where = core::join("dist.World: group ", request.monitor->name());
      prove_key_between(*backend, request.job_key, where, request.start_timeout);
    }
    backend->setTimeout(request.monitor->timeout());
    return {wrap_backend(request, c10d::ProcessGroup::BackendType::GLOO, backend), gloo_can()};
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception& error) {
    // A rank that ended meanwhile is the usual reason: what it says itself counts more.
    core::fail<core::CommError>("dist.World: the ranks of group ", request.monitor->name(),
                                " cannot connect (", first_line(error.what()),
                                "); did one of them end?");
  }
}

std::string unless_one_host(const RankInfo& info) {
  return info.single_host() ? "" : "it needs all ranks on one host";
}

#ifdef WEFT_HAS_NCCL
GroupHandles make_nccl(const GroupRequest& request) {
  const bool here = request.info.single_host();
  return add_nccl(request, here ? make_shm_group(request) : make_gloo(request));
}
#endif

bool from_mpirun(const RankInfo& info) {
  return info.launcher == "openmpi" || info.launcher == "mpich";
}

BackendRow row_of(const BackendName& backend) {
  switch (backend.id) {
#ifdef WEFT_HAS_NCCL
    case BackendId::kNccl:
      return {backend.id, backend.name, make_nccl, why_no_nccl, automatic};
#endif
    case BackendId::kMpi:
      return {backend.id, backend.name, make_mpi_group, always, from_mpirun, /*is_plain=*/true};
    case BackendId::kShm:
      return {backend.id, backend.name, make_shm_group, unless_one_host, automatic};
    case BackendId::kHierarchical:
      return {backend.id, backend.name, make_hierarchical_group, always, automatic};
    case BackendId::kGloo:
      return {backend.id, backend.name, make_gloo, always, automatic, /*is_plain=*/true};
    default:
      core::fail<core::InternalError>("dist.World: backend ", backend.name,
                                      " is said to be built, but has no row");
  }
}

// The first row for "auto" of those that `fits` takes; null if there is none.
template <class Function>
const BackendRow* first_automatic(const RankInfo& info, Function&& fits) {
  for (const BackendRow& row : backend_table()) {
    if (fits(row) && row.is_automatic(info) && row.why_not(info).empty()) return &row;
  }
  return nullptr;
}

}  // namespace

std::span<const BackendRow> backend_table() {
  static const std::vector<BackendRow> table = [] {
    std::vector<BackendRow> rows;
    for (const BackendName& backend : known_backends()) {
      if (backend.is_built) rows.push_back(row_of(backend));
    }
    return rows;
  }();
  return table;
}

GroupHandles make_plain_group(const GroupRequest& request) {
  const BackendRow* row =
      first_automatic(request.info, [](const BackendRow& each) { return each.is_plain; });
  core::check<core::InternalError>(row != nullptr, "dist.World: no backend is for all networks");
  return row->make(request);
}

const BackendRow& find_backend(const std::string& name, const RankInfo& info) {
  if (name == "auto") {
    const BackendRow* row = first_automatic(info, [](const BackendRow&) { return true; });
    core::check<core::InternalError>(row != nullptr, "dist.World: no backend is for all ranks");
    return *row;
  }
  const BackendId id = built_backend(name).id;
  const auto table = backend_table();
  const auto row = std::find_if(table.begin(), table.end(),
                                [id](const BackendRow& each) { return each.id == id; });
  const std::string reason = row->why_not(info);
  core::check<core::ConfigError>(reason.empty(), "dist.World: backend ", name, ": ", reason,
                                 "; use auto");
  return *row;
}

c10::intrusive_ptr<c10d::ProcessGroup> wrap_backend(const GroupRequest& request,
                                                    c10d::ProcessGroup::BackendType type,
                                                    c10::intrusive_ptr<c10d::Backend> backend) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(request.store, request.rank, request.size);
  group->setBackend(c10::DeviceType::CPU, type, backend);
  group->setDefaultBackend(type);
  return group;
}

}  // namespace weft::dist
