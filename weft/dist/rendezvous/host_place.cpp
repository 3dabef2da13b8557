#include "weft/dist/rendezvous/host_place.h"

#include <cstdlib>

#include "weft/dist/rendezvous/slurm.h"
#include "weft/dist/rendezvous/strict_environment.h"

namespace weft::dist {
namespace {

constexpr int kMaxHosts = 1024;
// Pods have an address each, so any port is free.
constexpr int kPodPort = 29'500;

void check_place(const HostPlace& place) {
  core::check<core::ConfigError>(place.host < place.num_hosts, "dist.host_place: ", place.source,
                                 " says that this is host ", place.host, ", expected below ",
                                 place.num_hosts, ", the hosts of the job");
}

std::optional<HostPlace> from_slurm_step(const StrictEnvironment& env) {
  if (!is_slurm_task(env) || !env.has("SLURM_STEP_NUM_NODES")) return std::nullopt;
  HostPlace place;
  place.source = "SLURM";
  place.num_hosts = env.integer("SLURM_STEP_NUM_NODES", 1, kMaxHosts);
  const int tasks = env.integer_or("SLURM_STEP_NUM_TASKS", 1, 1 << 20, 1);
  const auto meeting = slurm_meeting_place(env);
  if (place.num_hosts == 1 || tasks != place.num_hosts || !meeting) return std::nullopt;
  place.host = env.integer("SLURM_PROCID", 0, kMaxHosts - 1);
  place.address = meeting->address;
  place.port = meeting->port;
  return place;
}

std::optional<HostPlace> from_leader_worker_set(const StrictEnvironment& env) {
  if (!env.has("LWS_LEADER_ADDRESS") || !env.has("LWS_GROUP_SIZE")) return std::nullopt;
  HostPlace place;
  place.source = "LeaderWorkerSet";
  place.num_hosts = env.integer("LWS_GROUP_SIZE", 1, kMaxHosts);
  place.host = env.integer("LWS_WORKER_INDEX", 0, kMaxHosts - 1);
  place.address = *env.text("LWS_LEADER_ADDRESS");
  place.port = kPodPort;
  return place;
}

// An Indexed Job tells its pods their index, not their number.
std::optional<HostPlace> from_indexed_job(const StrictEnvironment& env) {
  if (!env.has("JOB_COMPLETION_INDEX") || !env.has("WEFT_HOSTS")) return std::nullopt;
  HostPlace place;
  place.source = "JobSet";
  place.num_hosts = env.integer("WEFT_HOSTS", 1, kMaxHosts);
  place.host = env.integer("JOB_COMPLETION_INDEX", 0, kMaxHosts - 1);
  place.port = kPodPort;
  const std::string set = env.text_or_empty("JOBSET_NAME");
  const std::string part = env.text_or_empty("REPLICATED_JOB_NAME");
  if (!set.empty() && !part.empty()) place.address = set + "-" + part + "-0-0." + set;
  return place;
}

}  // namespace

std::optional<HostPlace> host_place_from_env(const EnvLookup& lookup) {
  const StrictEnvironment env(lookup);
  if (env.has("WEFT_RANK")) return std::nullopt;
  for (const auto& find : {from_leader_worker_set, from_indexed_job, from_slurm_step}) {
    const auto place = find(env);
    if (!place || place->num_hosts == 1) continue;
    check_place(*place);
    return place;
  }
  return std::nullopt;
}

std::optional<HostPlace> host_place_from_env() {
  return host_place_from_env([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

}  // namespace weft::dist
