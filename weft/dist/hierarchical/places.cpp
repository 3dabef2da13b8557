#include "weft/dist/hierarchical/places.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

int find_rank(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

}  // namespace

bool HostPlaces::is_even() const {
  return std::all_of(hosts.begin(), hosts.end(),
                     [this](const auto& host) { return host.size() == hosts.front().size(); });
}

bool HostPlaces::all_alone() const {
  return std::all_of(hosts.begin(), hosts.end(), [](const auto& host) { return host.size() == 1; });
}

std::vector<int> HostPlaces::across(int index) const {
  std::vector<int> ranks;
  for (const auto& host : hosts) ranks.push_back(host[static_cast<size_t>(index)]);
  return ranks;
}

int HostPlaces::host_of(int rank) const {
  for (size_t h = 0; h < hosts.size(); ++h) {
    if (find_rank(hosts[h], rank) >= 0) return static_cast<int>(h);
  }
  core::fail<core::InternalError>("dist.hierarchical: no host has rank ", rank);
}

int HostPlaces::index_of(int rank) const {
  return find_rank(hosts[static_cast<size_t>(host_of(rank))], rank);
}

HostPlaces places_of(const std::vector<std::string>& names, int rank) {
  HostPlaces places;
  std::vector<std::string> known;
  for (size_t r = 0; r < names.size(); ++r) {
    const auto found = std::find(known.begin(), known.end(), names[r]);
    const auto host = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(names[r]);
      places.hosts.emplace_back();
    }
    places.hosts[host].push_back(static_cast<int>(r));
  }
  places.own_host = places.host_of(rank);
  places.own_index = places.index_of(rank);
  return places;
}

}  // namespace weft::dist
