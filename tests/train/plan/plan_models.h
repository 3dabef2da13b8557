#pragma once

#include "weft/train/plan/plan_job.h"

namespace weft::train {

/// Published models' sizes.
inline ModelSizes smollm2_135m() { return {49152, 576, 30, 9, 3, 64, 1536, true, false, false}; }
inline ModelSizes llama3_8b() { return {128256, 4096, 32, 32, 8, 128, 14336, false, false, false}; }

/// A model whose numbers are counted by hand: a block has 8 x 16 + 2 (4 x 16) + 16 x 8 + 3 (12 x
/// 16) + 2 x 16 = 992 elements, the embedding with the last norm 20 x 16 + 16 = 336.
inline ModelSizes tiny_model() { return {20, 16, 3, 4, 2, 2, 12, true, false, false}; }

/// tiny_model in float32 on a mesh: 8 sequences of 10 tokens, two at a time.
inline PlanJob tiny_job(int64_t replicas, int64_t dp, int64_t tp = 1, int64_t pipe = 1) {
  PlanJob job;
  job.model = tiny_model();
  job.mesh.replicas = replicas;
  job.mesh.dp = dp;
  job.mesh.tp = tp;
  job.mesh.pipe = pipe;
  job.sequences = 8;
  job.microbatch = 2;
  job.sequence_length = 10;
  return job;
}

}  // namespace weft::train
