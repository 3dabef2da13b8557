#pragma once

#include "weft/dist/group.h"
#include "weft/dist/mesh.h"

namespace weft::train {

/// This rank's groups on a training mesh; an axis that the mesh lacks has a group of one.
struct MeshGroups {
  dist::Group replica;
  dist::Group data;
  dist::Group pipe;
  dist::Group model;
  /// Ranks with different sequences: replica and data.
  dist::Group batch;
  /// All ranks that hold parts of the model: every axis.
  dist::Group all;
};

/// Collective over the mesh's world.
MeshGroups mesh_groups(const dist::Mesh& mesh);

}  // namespace weft::train
