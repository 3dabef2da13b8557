#pragma once

#include <cstdint>
#include <string>

#include "weft/core/json.h"
#include "weft/train/plan/mesh_search.h"

namespace weft::train {

/// What `weft plan` prints of a search: the job, a table of the `top` fastest meshes, the fastest
/// one's memory and collectives in full, and what did not fit and why.
std::string search_text(const MeshSearch& search, const PlanJob& job, const Hardware& hardware,
                        int64_t top);

/// Memory by what it is for and collectives by axis, of one mesh.
std::string mesh_plan_text(const MeshPlan& plan, const Hardware& hardware);

/// A run's first lines: parameters in all and per rank, mesh, batch, predicted memory per rank.
std::string run_header(const PlanJob& job);

/// One mesh as an object: sizes, memory, collectives, seconds.
core::Json mesh_plan_json(const MeshPlan& plan, const Hardware& hardware);
/// A search as an object: `meshes`, the fastest first, and `rejected`.
core::Json search_json(const MeshSearch& search, const PlanJob& job, const Hardware& hardware,
                       int64_t top);

}  // namespace weft::train
