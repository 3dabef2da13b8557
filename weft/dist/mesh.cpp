#include "weft/dist/mesh.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

std::string axes_text(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& axis : axes) {
    text += core::join(text.empty() ? "" : " x ", axis.name, "=", axis.size);
  }
  return text;
}

int64_t product(const std::vector<Axis>& axes) {
  int64_t ranks = 1;
  for (const Axis& axis : axes) {
    check<ConfigError>(axis.size >= 1, "dist.Mesh: axis ", axis.name,
                       ": expected a size of at least 1, got ", axis.size);
    const bool overflow = __builtin_mul_overflow(ranks, axis.size, &ranks);
    check<ConfigError>(!overflow, "dist.Mesh: ", axes_text(axes), ": too many ranks");
  }
  return ranks;
}

size_t find_axis(const std::vector<Axis>& axes, const std::string& name) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return i;
  }
  core::fail<ConfigError>("dist.Mesh: axis: expected one of ", axes_text(axes), ", got '", name,
                          "'");
}

// How to make the sizes fit: the first axis that can take up what is missing.
std::string advice(const std::vector<Axis>& axes, int64_t ranks) {
  for (size_t i = 0; i < axes.size(); ++i) {
    std::vector<Axis> fitting = axes;
    fitting[i].size = 1;
    const int64_t others = product(fitting);
    if (ranks % others != 0) continue;
    fitting[i].size = ranks / others;
    return "e.g. " + axes_text(fitting);
  }
  return core::join("sizes that multiply to ", ranks);
}

void check_names(const std::vector<Axis>& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    check<ConfigError>(!axes[i].name.empty() && find_axis(axes, axes[i].name) == i,
                       "dist.Mesh: expected different names for the axes, got '", axes[i].name,
                       "' twice or empty");
  }
}

// Ranks to the right of an axis, i.e. the distance of neighbours on it.
int64_t stride(const std::vector<Axis>& axes, size_t axis) {
  int64_t ranks = 1;
  for (size_t i = axis + 1; i < axes.size(); ++i) ranks *= axes[i].size;
  return ranks;
}

}  // namespace

Mesh::Mesh(World world, std::vector<Axis> axes) : world_(std::move(world)), axes_(std::move(axes)) {
  check_names(axes_);
  const int64_t ranks = product(axes_);
  check<ConfigError>(ranks == world_.size(), "dist.Mesh: ", axes_text(axes_), ": expected ",
                     world_.size(), " ranks, got ", ranks, "; use ", advice(axes_, world_.size()));
}

int64_t Mesh::size(const std::string& axis) const { return axes_[find_axis(axes_, axis)].size; }

int64_t Mesh::coordinate(const std::string& axis) const {
  const size_t index = find_axis(axes_, axis);
  return world_.rank() / stride(axes_, index) % axes_[index].size;
}

Group Mesh::group(const std::vector<std::string>& axes) const {
  std::string name;
  for (const Axis& axis : axes_) {
    if (std::find(axes.begin(), axes.end(), axis.name) == axes.end()) continue;
    name += (name.empty() ? "" : "+") + axis.name;
  }
  const auto all = partitions(axes_, axes);
  const auto known = groups_.find(name);
  if (known != groups_.end()) return known->second;
  Group own;
  for (const auto& ranks : all) {
    // The group of everybody exists already.
    const bool everybody = static_cast<int>(ranks.size()) == world_.size();
    const Group group = everybody ? world_.group() : world_.make_group(name, ranks);
    if (std::find(ranks.begin(), ranks.end(), world_.rank()) != ranks.end()) own = group;
  }
  groups_.emplace(name, own);
  return own;
}

std::vector<std::vector<int>> Mesh::partitions(const std::vector<Axis>& all,
                                               const std::vector<std::string>& axes) {
  std::vector<bool> varies(all.size(), false);
  for (const auto& name : axes) varies[find_axis(all, name)] = true;
  std::map<int64_t, std::vector<int>> groups;
  const int64_t ranks = product(all);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    // Ranks with the same place on all other axes form a group; its first rank identifies it.
    int64_t first = rank;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t step = stride(all, i);
      if (varies[i]) first -= rank / step % all[i].size * step;
    }
    groups[first].push_back(static_cast<int>(rank));
  }
  std::vector<std::vector<int>> result;
  for (auto& [first, members] : groups) result.push_back(std::move(members));
  return result;
}

}  // namespace weft::dist
