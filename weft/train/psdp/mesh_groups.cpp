#include "weft/train/psdp/mesh_groups.h"

#include <algorithm>
#include <string>
#include <vector>

#include "weft/train/mapping.h"

namespace weft::train {
namespace {

dist::Group group_of(const dist::Mesh& mesh, const std::vector<std::string>& axes) {
  std::vector<std::string> present;
  for (const dist::Axis& axis : mesh.axes()) {
    if (std::ranges::find(axes, axis.name) != axes.end()) present.push_back(axis.name);
  }
  return present.empty() ? dist::Group() : mesh.group(present);
}

}  // namespace

MeshGroups mesh_groups(const dist::Mesh& mesh) {
  return {group_of(mesh, {"replica"}),
          group_of(mesh, {"data"}),
          group_of(mesh, {"pipe"}),
          group_of(mesh, {"model"}),
          group_of(mesh, axes_of(State::kBatch)),
          group_of(mesh, {kAxes.begin(), kAxes.end()})};
}

}  // namespace weft::train
