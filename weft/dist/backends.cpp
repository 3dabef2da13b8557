#include "weft/dist/backends.h"

#include <array>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "weft/core/error.h"
#include "weft/dist/shm/backend.h"

namespace weft::dist {
namespace {

std::string always(const RankInfo&) { return ""; }

GroupHandles make_gloo(const GroupRequest& request) {
  auto options = c10d::ProcessGroupGloo::Options::create(request.monitor->timeout());
  // On one host nothing may listen beyond loopback; across hosts Gloo takes this host's address.
  options->devices.push_back(request.info.single_host()
                                 ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                 : c10d::ProcessGroupGloo::createDefaultDevice());
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(request.store, request.rank,
                                                             request.size, options);
  return {wrap_backend(request, true, backend), nullptr};
}

std::string unless_one_host(const RankInfo& info) {
  return info.single_host() ? "" : "it needs all ranks on one host";
}

constexpr std::array<BackendRow, 2> kTable = {{
    {"shm", make_shm_group, unless_one_host},
    {"gloo", make_gloo, always},
}};

std::string table_names() {
  std::string names;
  for (const BackendRow& row : kTable) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

std::span<const BackendRow> backend_table() { return kTable; }

const BackendRow& find_backend(const std::string& name, const RankInfo& info) {
  for (const BackendRow& row : kTable) {
    const std::string reason = row.why_not(info);
    if (name == "auto" && reason.empty()) return row;
    if (name != row.name) continue;
    core::check<core::ConfigError>(reason.empty(), "dist.World: backend ", name, ": ", reason,
                                   "; use auto");
    return row;
  }
  core::fail<core::ConfigError>("dist.World: backend: this build has no ", name,
                                " backend; use one of: ", table_names(), ", auto");
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
