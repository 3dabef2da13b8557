#pragma once

#include <string>
#include <vector>

namespace weft::dist {

/// Where the ranks of a group are.
struct HostPlaces {
  /// The group's ranks on each host, ascending; the hosts in the order of their first ranks.
  std::vector<std::vector<int>> hosts;
  /// This rank's host, and its index among the ranks there.
  int own_host = 0;
  int own_index = 0;

  const std::vector<int>& here() const { return hosts[static_cast<size_t>(own_host)]; }
  int own_rank() const { return here()[static_cast<size_t>(own_index)]; }
  /// True if all hosts have as many ranks.
  bool is_even() const;
  /// True if no host has several ranks of the group.
  bool all_alone() const;
  /// The ranks with `index` on their hosts; all hosts must have one.
  std::vector<int> across(int index) const;
  /// The host of `rank`, and the rank's index there.
  int host_of(int rank) const;
  int index_of(int rank) const;
};

/// The places of a group's ranks on the hosts that `names` gives for each of them, seen by `rank`.
HostPlaces places_of(const std::vector<std::string>& names, int rank);

}  // namespace weft::dist
