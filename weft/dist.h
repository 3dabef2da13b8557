#pragma once

// weft::dist: ranks, groups, meshes. All public headers of this area.
#include "weft/dist/backends/group_handles.h"
#include "weft/dist/group.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/mesh.h"
#include "weft/dist/model_parallel_state.h"
#include "weft/dist/parallelism.h"
#include "weft/dist/shared_sum.h"
#include "weft/dist/world.h"
