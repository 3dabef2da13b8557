#include "weft/train/plan/memory_plan.h"

#include <algorithm>

#include "weft/shard/sum_order.h"
#include "weft/train/config/check_config.h"
#include "weft/train/exact/sequence_order.h"
#include "weft/train/flat_layout.h"

namespace weft::train {
namespace {

constexpr int64_t kFloatBytes = 4;

// Values that an optimizer keeps of each element.
int64_t states_per_element(const OptimizerSection& optimizer) {
  if (optimizer.name == "adamw") return 2;
  if (optimizer.name == "lion") return 1;
  return optimizer.name == "sgd" && optimizer.momentum > 0 ? 1 : 0;
}

int64_t optimizer_bytes(const PlanJob& job, const UnitSizes& unit, int64_t owned_length) {
  if (job.optimizer.name == "adafactor") return kFloatBytes * unit.rows_and_columns;
  return kFloatBytes * states_per_element(job.optimizer) * owned_length;
}

// Of the rank of replica and data that has the most: one value of each element of a block's
// matrices, two of all others.
int64_t muon_bytes(const PlanJob& job, const std::vector<UnitSizes>& units) {
  std::vector<int64_t> values(static_cast<size_t>(job.mesh.num_data_ranks()), 0);
  // The blocks, which all need the same, then what is around them.
  const int64_t num_blocks = std::ranges::count_if(
      units, [](const UnitSizes& unit) { return !unit.hidden_matrices.empty(); });
  for (size_t i = 0; i < units.size(); ++i) {
    const bool is_block = !units[i].hidden_matrices.empty();
    if (is_block && i > 0) continue;
    const FlatLayout layout(units[i].numels, job.mesh.dp, job.mesh.replicas);
    for (size_t rank = 0; rank < values.size(); ++rank) {
      const auto place = static_cast<int64_t>(rank);
      const shard::Range owned = layout.owned(place % job.mesh.dp, place / job.mesh.dp);
      int64_t here = 2 * owned.length;
      for (const auto& piece : layout.pieces(owned)) {
        const bool is_matrix = std::ranges::count(units[i].hidden_matrices, piece.parameter) > 0;
        if (is_matrix) here -= piece.elements.length;
      }
      values[rank] += here * (is_block ? num_blocks : 1);
    }
  }
  return kFloatBytes * *std::ranges::max_element(values);
}

// Elements that a block keeps per token, in the dtype that is computed in.
int64_t block_elements(const PlanJob& job, const RankSizes& rank) {
  const int64_t ranks = job.sequence_parallel ? job.mesh.tp : 1;
  const int64_t queries = rank.heads.heads.length;
  // Exact training copies keys and values for each query head.
  const int64_t heads = queries + (job.exact ? queries : rank.heads.kv_heads.length);
  return 4 * job.model.hidden_size / ranks + 2 * heads * job.model.head_dim + 3 * rank.ffn_width;
}

// At the same time: the one in use and the one that is fetched beside it.
int64_t num_gathered_blocks(const PlanJob& job, int64_t num_layers) {
  if (!job.release_after_forward) return num_layers;
  return std::min<int64_t>(num_layers, job.prefetch ? 2 : 1);
}

int64_t activation_bytes(const PlanJob& job, const RankSizes& rank, int64_t stage) {
  const int64_t tokens = job.num_tokens();
  const int64_t ranks = job.sequence_parallel ? job.mesh.tp : 1;
  const int64_t residual = tokens * job.dtype_bytes * job.model.hidden_size / ranks;
  const int64_t block = tokens * (job.dtype_bytes * block_elements(job, rank) +
                                  kFloatBytes * rank.heads.heads.length);
  const int64_t in_flight = std::min(job.num_microbatches(), job.mesh.pipe - stage);
  const int64_t kept = job.checkpoint_activations ? residual : block;
  int64_t bytes = in_flight * rank.num_layers * kept + (job.checkpoint_activations ? block : 0);
  if (!rank.has_head) bytes += in_flight * residual;
  // The last norm's input and output; the logits, and the softmax in their place in float32.
  if (rank.has_head) {
    const int64_t per_logit =
        job.dtype_bytes == kFloatBytes ? kFloatBytes : kFloatBytes + job.dtype_bytes;
    bytes += 2 * residual + tokens * rank.vocab_size * per_logit;
  }
  return bytes;
}

// Whole gradients that wait for those of other sequences. What data ranks exchange of a unit at
// last, to be sent and received, takes the place of activations.
int64_t exact_gradient_bytes(const PlanJob& job, const std::vector<UnitSizes>& units,
                             int64_t activations) {
  const int64_t ranks = job.mesh.num_data_ranks();
  int64_t elements = 0, longest = 0;
  for (const UnitSizes& unit : units) {
    elements += unit.num_elements();
    longest = std::max(longest, FlatLayout(unit.numels, job.mesh.dp, job.mesh.replicas).length());
  }
  const int64_t kept = most_kept_gradients(job.sequences, ranks, job.microbatch);
  const int64_t exchanged = ranks > 1 ? 2 * longest * kFloatBytes : 0;
  return kept * elements * kFloatBytes + std::max<int64_t>(0, exchanged - activations);
}

// Rooms of the sums over heads, feed-forward features and the vocabulary.
int64_t ordered_sum_bytes(const PlanJob& job) {
  const int64_t tp = job.mesh.tp, width = job.model.hidden_size;
  if (!job.exact || tp == 1) return 0;
  // The trees are cut by two first; other numbers of ranks have several sums each.
  const int64_t slots = (tp & (tp - 1)) == 0 ? 1 : 4;
  const int64_t rows = std::min(job.num_tokens(), shard::rows_exchanged_at_once(width));
  return 3 * (1 + tp) * slots * rows * width * kFloatBytes;
}

}  // namespace

PlanJob plan_job(const TrainConfig& config, const ModelSizes& model) {
  PlanJob job;
  job.model = model;
  job.mesh = config.mesh;
  job.sequences = config.batch.sequences;
  job.microbatch = plan_batch(config).microbatch;
  job.sequence_length = config.batch.sequence_length;
  job.dtype_bytes = config.train.dtype == "float32" ? 4 : 2;
  job.optimizer = config.optimizer;
  job.checkpoint_activations = config.train.checkpoint_activations;
  job.sequence_parallel = config.train.sequence_parallel;
  job.exact = config.train.exact;
  return job;
}

MemoryPlan memory_plan(const PlanJob& job, int64_t stage, int64_t model_rank) {
  const ModelPlace place = job.place(stage, model_rank);
  const RankSizes rank = rank_sizes(job.model, place);
  const std::vector<UnitSizes> units = unit_sizes(job.model, place);
  MemoryPlan plan;
  int64_t block_gathered = 0, block_work = 0, root_gathered = 0, root_gradients = 0, root_run = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const FlatLayout layout(units[i].numels, job.mesh.dp, job.mesh.replicas);
    plan.parameters += layout.share_length() * job.dtype_bytes;
    if (job.dtype_bytes != kFloatBytes) plan.masters += layout.owned_length() * kFloatBytes;
    if (!job.exact) plan.gradients += layout.share_length() * kFloatBytes;
    if (job.exact || job.mesh.replicas > 1) {
      plan.gradients += layout.owned_length() * kFloatBytes;
    }
    plan.optimizer += optimizer_bytes(job, units[i], layout.owned_length());
    const bool is_cut = job.mesh.dp > 1;
    const int64_t gathered = is_cut ? layout.length() * job.dtype_bytes : 0;
    // A second microbatch's share is added to the first's.
    const int64_t run = is_cut ? (layout.length() + layout.share_length()) * kFloatBytes : 0;
    const int64_t gradients = layout.num_elements() * job.dtype_bytes;
    if (static_cast<int64_t>(i) < rank.num_layers) {
      // All blocks need the same.
      block_gathered = gathered;
      block_work = std::max(block_work, gradients + run);
    } else {
      root_gathered += gathered;
      root_gradients += gradients;
      root_run = std::max(root_run, run);
    }
  }
  if (job.optimizer.name == "muon") plan.optimizer = muon_bytes(job, units);
  plan.gathered = root_gathered + num_gathered_blocks(job, rank.num_layers) * block_gathered;
  plan.activations = activation_bytes(job, rank, stage);
  plan.gradient_work = job.exact ? exact_gradient_bytes(job, units, plan.activations)
                                 : root_gradients + std::max(block_work, root_run);
  plan.ordered_sums = ordered_sum_bytes(job);
  return plan;
}

MemoryPlan largest_memory_plan(const PlanJob& job) {
  MemoryPlan largest;
  for (int64_t stage = 0; stage < job.mesh.pipe; ++stage) {
    // Parts are cut so that no rank has more than the first.
    const MemoryPlan plan = memory_plan(job, stage, 0);
    if (plan.total() > largest.total()) largest = plan;
  }
  return largest;
}

}  // namespace weft::train
