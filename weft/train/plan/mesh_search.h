#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/plan/hardware.h"
#include "weft/train/plan/memory_plan.h"
#include "weft/train/plan/step_time.h"

namespace weft::train {

/// A mesh on paper.
struct MeshPlan {
  PlanJob job;
  MemoryPlan memory;
  StepTime time;
};

/// Meshes of one size that can't be used, and why.
struct RejectedMeshes {
  /// E.g. "need more than the 72.0 GB of a rank; the least, 80.1 GB, with replica 1 x data 8 x …".
  std::string reason;
  int64_t count = 0;
};

/// What a search found.
struct MeshSearch {
  /// The fastest first.
  std::vector<MeshPlan> fitting;
  std::vector<RejectedMeshes> rejected;
};

/// What of a rank's memory is planned with; the rest is for the libraries and for gaps.
inline constexpr double kUsableMemory = 0.9;

/// Tries every (replica, data, model) of `ranks` ranks around the job's pipe axis. A mesh must fit
/// the model and the batch, keep the model axis within a host and need at most kUsableMemory. Of
/// each mesh that fits, the microbatch is the fastest one, or `microbatch` if that is not 0.
/// Throws ConfigError if the pipe axis does not divide `ranks`.
MeshSearch search_meshes(const PlanJob& job, int64_t ranks, const Hardware& hardware,
                         int64_t microbatch);

/// The plan of the job as it is.
MeshPlan plan_mesh(const PlanJob& job, const Hardware& hardware);

/// "replica 2 x data 8 x pipe 1 x model 4".
std::string mesh_text(const MeshSection& mesh);

}  // namespace weft::train
