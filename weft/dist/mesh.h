#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/world.h"

namespace weft::dist {

/// A named axis of a mesh and the number of ranks along it.
struct Axis {
  std::string name;
  int64_t size = 1;
};

/// Ranks laid out on named axes, row-major: the last axis is the fastest.
class Mesh {
 public:
  /// The axes' sizes must multiply to the world's size; otherwise ConfigError shows sizes that do.
  /// Collective over the world.
  Mesh(World world, std::vector<Axis> axes);

  const World& world() const { return world_; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// Size of, and this rank's place on, an axis. Throws ConfigError for an unknown name.
  int64_t size(const std::string& axis) const;
  int64_t coordinate(const std::string& axis) const;
  /// The group of the ranks that differ from this one only on `axes`, e.g. {"replica", "data"}.
  /// Its ranks are ordered as the axes are in the mesh. Collective over the world the first time
  /// that it is asked for; kept afterwards.
  Group group(const std::vector<std::string>& axes) const;

  /// The arithmetic on which it rests: for every group along `axes`, its world ranks.
  static std::vector<std::vector<int>> partitions(const std::vector<Axis>& all,
                                                  const std::vector<std::string>& axes);

 private:
  World world_;
  std::vector<Axis> axes_;
  mutable std::map<std::string, Group> groups_;
};

}  // namespace weft::dist
