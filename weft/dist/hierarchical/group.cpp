// How the ranks of a group on several hosts come together.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/block_backend.h"
#include "weft/dist/hierarchical/transport.h"
#include "weft/dist/shm/transport.h"

namespace weft::dist {
namespace {

HostPlaces places_in(const GroupRequest& request) {
  std::vector<std::string> names;
  for (const int rank : request.monitor->world_ranks()) {
    names.push_back(request.monitor->peers().peer(rank).host);
  }
  return places_of(names, request.rank);
}

// The request for a group of some of the group's ranks, of which this is number `rank`.
GroupRequest part_of(const GroupRequest& whole, const std::string& name,
                     const std::vector<int>& ranks, int rank) {
  std::vector<int> world_ranks;
  for (const int each : ranks) {
    world_ranks.push_back(whole.monitor->world_ranks()[static_cast<size_t>(each)]);
  }
  return {whole.info,
          c10::make_intrusive<c10d::PrefixStore>(name, whole.store),
          std::make_shared<GroupMonitor>(whole.monitor, std::move(world_ranks)),
          rank,
          static_cast<int>(ranks.size()),
          core::join(whole.id, "-", name),
          whole.start_timeout,
          whole.job_key};
}

Group plain_group(const GroupRequest& request) {
  return {request.monitor->name(), make_plain_group(request), request.monitor};
}

// Where the hosts have different numbers of ranks only the first ones are sure to have a match.
Group group_between(const GroupRequest& request, const HostPlaces& places) {
  if (!places.is_even() && places.own_index != 0) return {};
  return plain_group(part_of(request, core::join("between", places.own_index),
                             places.across(places.own_index), places.own_host));
}

}  // namespace

GroupHandles make_hierarchical_group(const GroupRequest& request) {
  HostPlaces places = places_in(request);
  if (places.hosts.size() == 1) return make_shm_group(request);
  if (places.all_alone()) return make_plain_group(request);
  std::unique_ptr<ShmTransport> inside;
  if (places.here().size() > 1) {
    inside = make_shm_transport(
        part_of(request, core::join("host", places.own_host), places.here(), places.own_index));
  }
  Group between = group_between(request, places);
  std::vector<int> everyone;
  for (int rank = 0; rank < request.size; ++rank) everyone.push_back(rank);
  Group all = plain_group(part_of(request, "all", everyone, request.rank));
  auto transport = std::make_unique<HierarchicalTransport>(
      std::move(places), std::move(inside), std::move(between), std::move(all), request.monitor);
  return make_block_group(request, "hierarchical", std::move(transport));
}

}  // namespace weft::dist
