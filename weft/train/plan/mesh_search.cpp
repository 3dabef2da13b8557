#include "weft/train/plan/mesh_search.h"

#include <algorithm>
#include <optional>

#include "weft/core/error.h"
#include "weft/train/config/check_config.h"
#include "weft/train/metrics/human_text.h"

namespace weft::train {
namespace {

using core::join;

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    found.push_back(i);
    if (i * i != number) found.push_back(number / i);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Collects meshes by what speaks against them.
class Search {
 public:
  Search(const Hardware& hardware, int64_t microbatch)
      : hardware_(hardware), microbatch_(microbatch) {}

  void try_mesh(PlanJob job) {
    const std::string reason = obstacle(job);
    if (!reason.empty()) return reject(reason);
    std::optional<MeshPlan> best, smallest;
    for (const int64_t microbatch : microbatches(job)) {
      job.microbatch = microbatch;
      MeshPlan plan = plan_mesh(job, hardware_);
      if (!smallest || plan.memory.total() < smallest->memory.total()) smallest = plan;
      if (static_cast<double>(plan.memory.total()) > usable()) continue;
      if (!best || plan.time.total() < best->time.total()) best = std::move(plan);
    }
    if (best) {
      found_.fitting.push_back(std::move(*best));
    } else {
      add_too_large(*smallest);
    }
  }

  MeshSearch result() {
    if (too_large_) {
      const double least = static_cast<double>(too_large_->memory.total());
      found_.rejected.push_back(
          {join("need more memory than the ", bytes_text(usable()), " that are planned with of ",
                bytes_text(hardware_.memory_bytes), " per rank; the least, ", bytes_text(least),
                ", with ", mesh_text(too_large_->job.mesh)),
           num_too_large_});
    }
    std::stable_sort(
        found_.fitting.begin(), found_.fitting.end(),
        [](const MeshPlan& a, const MeshPlan& b) { return a.time.total() < b.time.total(); });
    return std::move(found_);
  }

 private:
  double usable() const { return kUsableMemory * hardware_.memory_bytes; }

  std::string obstacle(const PlanJob& job) const {
    const int64_t tp = job.mesh.tp;
    if (tp > job.model.num_heads || tp > job.model.intermediate_size || tp > job.model.vocab_size) {
      return join("cut the model over more ranks than its ", job.model.num_heads, " heads");
    }
    if (job.exact && tp > kMostExactModelRanks) {
      return join("cut the model over more ranks than the ", kMostExactModelRanks,
                  " of train.exact");
    }
    if (tp > hardware_.ranks_per_host) {
      return join("have a model axis longer than a host's ", hardware_.ranks_per_host, " ranks");
    }
    const int64_t ranks = job.mesh.num_data_ranks();
    if (job.sequences % ranks != 0) {
      return join("have replica x data ranks that don't divide batch.sequences ", job.sequences);
    }
    if (microbatch_ > 0 && job.sequences / ranks % microbatch_ != 0) {
      return join("have a batch per data rank that batch.microbatch ", microbatch_,
                  " doesn't divide");
    }
    return {};
  }

  std::vector<int64_t> microbatches(const PlanJob& job) const {
    if (microbatch_ > 0) return {microbatch_};
    return divisors(job.sequences / job.mesh.num_data_ranks());
  }

  void reject(const std::string& reason) {
    auto& rejected = found_.rejected;
    const auto known = std::find_if(rejected.begin(), rejected.end(),
                                    [&](const auto& each) { return each.reason == reason; });
    if (known != rejected.end()) {
      ++known->count;
    } else {
      rejected.push_back({reason, 1});
    }
  }

  void add_too_large(const MeshPlan& plan) {
    ++num_too_large_;
    if (!too_large_ || plan.memory.total() < too_large_->memory.total()) too_large_ = plan;
  }

  const Hardware& hardware_;
  int64_t microbatch_;
  MeshSearch found_;
  std::optional<MeshPlan> too_large_;
  int64_t num_too_large_ = 0;
};

}  // namespace

std::string mesh_text(const MeshSection& mesh) {
  return join("replica ", mesh.replicas, " x data ", mesh.dp, " x pipe ", mesh.pipe, " x model ",
              mesh.tp);
}

MeshPlan plan_mesh(const PlanJob& job, const Hardware& hardware) {
  return {job, largest_memory_plan(job), step_time(job, hardware)};
}

MeshSearch search_meshes(const PlanJob& job, int64_t ranks, const Hardware& hardware,
                         int64_t microbatch) {
  core::check<core::ConfigError>(ranks % job.mesh.pipe == 0, "plan: expected ranks that mesh.pipe ",
                                 job.mesh.pipe, " divides, got ", ranks,
                                 "; change --ranks or --pipe");
  Search search(hardware, microbatch);
  for (const int64_t tp : divisors(ranks / job.mesh.pipe)) {
    for (const int64_t dp : divisors(ranks / job.mesh.pipe / tp)) {
      PlanJob each = job;
      each.mesh.tp = tp;
      each.mesh.dp = dp;
      each.mesh.replicas = ranks / job.mesh.pipe / tp / dp;
      // Without a model axis there is nothing to cut the sequence over.
      each.sequence_parallel = job.sequence_parallel && tp > 1;
      search.try_mesh(std::move(each));
    }
  }
  return search.result();
}

}  // namespace weft::train
