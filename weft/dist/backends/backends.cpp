#include "weft/dist/backends/backends.h"

#include <array>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "weft/core/error.h"
#include "weft/dist/hierarchical/transport.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/shm/transport.h"
#ifdef WEFT_HAS_MPI
#include "weft/dist/mpi/group.h"
#endif
#ifdef WEFT_HAS_NCCL
#include "weft/dist/nccl/group.h"
#endif

namespace weft::dist {
namespace {

// libtorch's texts go on with a stack trace after the first line.
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::string always(const RankInfo&) { return ""; }
bool automatic(const RankInfo&) { return true; }

GroupHandles make_gloo(const GroupRequest& request) {
  auto options = c10d::ProcessGroupGloo::Options::create(request.monitor->timeout());
  // On one host nothing may listen beyond loopback; across hosts Gloo listens where the others see
  // this one.
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(own_address(request.info)));
  try {
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank,
                                                               request.size, options);
    return {wrap_backend(request, true, backend), nullptr};
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

#ifdef WEFT_HAS_MPI
bool from_mpirun(const RankInfo& info) {
  return info.launcher == "openmpi" || info.launcher == "mpich";
}
#endif

constexpr auto kTable = std::to_array<BackendRow>({
#ifdef WEFT_HAS_NCCL
    {"nccl", make_nccl, why_no_nccl, automatic},
#endif
    {"shm", make_shm_group, unless_one_host, automatic},
    {"hierarchical", make_hierarchical_group, always, automatic},
#ifdef WEFT_HAS_MPI
    {"mpi", make_mpi_group, always, from_mpirun},
#endif
    {"gloo", make_gloo, always, automatic},
});

// What a build may lack, and how to get it.
struct OptionalBackend {
  const char* name;
  const char* remedy;
};

constexpr std::array<OptionalBackend, 2> kOptional = {{
    {"mpi",
     ": MPI was not found when it was built; install libopenmpi-dev and build again, or use one "
     "of: "},
    {"nccl",
     ": it was built without CUDA and NCCL; configure with -DWEFT_NCCL=ON and build again, or use "
     "one of: "},
}};

std::string table_names() {
  std::string names;
  for (const BackendRow& row : kTable) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

std::span<const BackendRow> backend_table() { return kTable; }

GroupHandles make_plain_group(const GroupRequest& request) {
#ifdef WEFT_HAS_MPI
  if (from_mpirun(request.info)) return make_mpi_group(request);
#endif
  return make_gloo(request);
}

const BackendRow& find_backend(const std::string& name, const RankInfo& info) {
  for (const BackendRow& row : kTable) {
    const bool is_auto = name == "auto" && row.is_automatic(info);
    if (!is_auto && name != row.name) continue;
    const std::string reason = row.why_not(info);
    if (is_auto && !reason.empty()) continue;
    core::check<core::ConfigError>(reason.empty(), "dist.World: backend ", name, ": ", reason,
                                   "; use auto");
    return row;
  }
  std::string remedy = "; use one of: ";
  for (const OptionalBackend& each : kOptional) {
    if (name == each.name) remedy = each.remedy;
  }
  core::fail<core::ConfigError>("dist.World: backend: this build has no ", name, " backend", remedy,
                                table_names(), ", auto");
}

c10::intrusive_ptr<c10d::ProcessGroup> wrap_backend(const GroupRequest& request, bool is_gloo,
                                                    c10::intrusive_ptr<c10d::Backend> backend) {
  using c10d::ProcessGroup;
  auto group = c10::make_intrusive<ProcessGroup>(request.store, request.rank, request.size);
  const auto type = is_gloo ? ProcessGroup::BackendType::GLOO : ProcessGroup::BackendType::CUSTOM;
  group->setBackend(c10::DeviceType::CPU, type, backend);
  group->setDefaultBackend(type);
  return group;
}

}  // namespace weft::dist
