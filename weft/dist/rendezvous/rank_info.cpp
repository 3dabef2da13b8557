#include "weft/dist/rendezvous/rank_info.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/slurm.h"
#include "weft/dist/rendezvous/strict_environment.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;

using Environment = StrictEnvironment;

constexpr int kMaxRanks = 1 << 20;
constexpr const char* kRankInfo = "dist.rank_info: ";

// The variables in which a launcher says the four numbers.
struct Names {
  std::string rank, size, local_rank, local_size;
};

void check_beside(const Environment& env, const std::string& name, const std::string& other) {
  check<ConfigError>(!env.has(name) || env.has(other), kRankInfo, name, " is set without ", other,
                     "; set both or neither");
}

RankInfo read_numbers(const Environment& env, const Names& names, const char* launcher) {
  RankInfo info;
  info.launcher = launcher;
  info.size = env.integer(names.size, 1, kMaxRanks);
  info.rank = env.integer(names.rank, 0, kMaxRanks);
  check<ConfigError>(info.rank < info.size, kRankInfo, names.rank, ": expected a rank below ",
                     names.size, "=", info.size, ", got ", info.rank);
  // Each rank of a host would be its first, and all would take the same GPU. One rank has one
  // place, and SLURM says the sizes of all hosts in another way.
  if (info.size > 1 && names.local_size != "-") {
    check_beside(env, names.local_size, names.local_rank);
  }
  info.local_size = env.integer_or(names.local_size, 1, info.size, 0);
  info.launcher_rank = info.rank;
  info.local_rank = env.integer_or(names.local_rank, 0, kMaxRanks, 0);
  return info;
}

void read_master(const Environment& env, RankInfo& info) {
  info.master_addr = env.text("MASTER_ADDR").value_or("");
  if (info.master_addr.empty()) return;
  info.master_port = env.integer_or("MASTER_PORT", 1, 65535, 0);
  check<ConfigError>(info.master_port != 0, kRankInfo,
                     "MASTER_ADDR is set without MASTER_PORT; set both or neither");
}

bool is_here(const std::string& address) {
  return address.empty() || address == "localhost" || address == "::1" ||
         address.rfind("127.", 0) == 0;
}

// A launcher that says nothing of hosts: all ranks are here if the store is here or nowhere.
void complete_local(RankInfo& info) {
  if (info.local_size == 0) {
    const bool here = is_here(info.master_addr);
    info.local_size = here ? info.size : 1;
    info.local_rank = here ? info.rank : 0;
  }
  check<ConfigError>(info.local_rank < info.local_size, kRankInfo, "local rank: expected below ",
                     info.local_size, ", the ranks of this host, got ", info.local_rank);
}

std::string process_identity(pid_t pid) {
  return core::join("pid-", pid, "-", process_start_time(pid));
}

RankInfo from_weft(const Environment& env) {
  RankInfo info = read_numbers(
      env, {"WEFT_RANK", "WEFT_WORLD_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_WORLD_SIZE"}, "weft");
  info.master_addr = env.text_or_empty("WEFT_STORE_ADDRESS");
  info.master_port = env.integer("WEFT_STORE_PORT", 1, 65535);
  complete_local(info);
  info.job_id = env.text("WEFT_JOB_ID").value_or("");
  check<ConfigError>(!info.job_id.empty(), kRankInfo,
                     "WEFT_RANK is set without WEFT_JOB_ID; start the ranks by `weft launch`");
  info.store_is_served = true;
  return info;
}

// torchrun, or ranks started by hand with its variables.
RankInfo from_torchrun(const Environment& env) {
  const Names names = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  RankInfo info = read_numbers(env, names, "torchrun");
  read_master(env, info);
  const std::string by_hand = env.text("WEFT_JOB_ID").value_or("");
  check<ConfigError>(
      info.size == 1 || !info.master_addr.empty() || !by_hand.empty(), kRankInfo,
      "RANK and WORLD_SIZE are set, but where the ranks meet is not; set MASTER_ADDR "
      "and MASTER_PORT, or WEFT_JOB_ID on one host");
  // A local rank without the number of them would be lost where the store is on another host.
  if (info.size > 1 && !is_here(info.master_addr)) {
    check_beside(env, names.local_rank, names.local_size);
  }
  complete_local(info);
  info.store_is_served = env.text_or_empty("TORCHELASTIC_USE_AGENT_STORE") == "True";
  info.job_id = by_hand;
  if (info.job_id.empty()) {
    info.job_id = core::join("torchrun-", env.text("TORCHELASTIC_RUN_ID").value_or("none"), "-",
                             info.master_addr, "-", info.master_port);
  }
  return info;
}

RankInfo from_openmpi(const Environment& env) {
  RankInfo info = read_numbers(env,
                               {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                               "openmpi");
  read_master(env, info);
  complete_local(info);
  // The transports key is drawn anew for each mpirun; both are the same on all ranks.
  const auto space = env.text("PMIX_NAMESPACE");
  const auto key = env.text("OMPI_MCA_orte_precondition_transports");
  info.job_id = space || key ? "openmpi-" + space.value_or("") + "-" + key.value_or("")
                             : process_identity(getppid());
  return info;
}

RankInfo from_mpich(const Environment& env) {
  RankInfo info =
      read_numbers(env, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, "mpich");
  read_master(env, info);
  complete_local(info);
  // Hydra names no job. Its proxy is the nearest ancestor that the ranks of a host share, also
  // when each runs inside a shell of its own.
  const pid_t proxy = find_ancestor("hydra_pmi_proxy");
  info.job_id = info.single_host() ? process_identity(proxy != 0 ? proxy : getppid())
                                   : core::join("mpich-", info.master_addr, "-", info.master_port);
  return info;
}

// "2(x3),1": this many tasks on each node. One host is assumed for a single plain number.
int slurm_local_size(const Environment& env, int size) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = env.text(name);
    if (!text) continue;
    int number = 0;
    const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    const bool same_everywhere = stop == text->data() + text->size() || *stop == '(';
    check<ConfigError>(error == std::errc() && number >= 1, kRankInfo, name,
                       ": expected task counts such as 2(x3), got '", *text, "'");
    return same_everywhere && number <= size ? number : 1;
  }
  return env.integer_or("SLURM_NTASKS_PER_NODE", 1, size, 0);
}

// Rank 0 is on the first node of the step.
void read_slurm_meeting(const Environment& env, RankInfo& info) {
  const auto place = slurm_meeting_place(env);
  if (!place) return;
  info.master_addr = place->address;
  info.master_port = place->port;
}

RankInfo from_slurm(const Environment& env) {
  const std::string size_name =
      env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  RankInfo info = read_numbers(env, {"SLURM_PROCID", size_name, "SLURM_LOCALID", "-"}, "slurm");
  read_master(env, info);
  info.local_size = slurm_local_size(env, info.size);
  if (info.local_size != 0) info.local_size = std::max(info.local_size, info.local_rank + 1);
  complete_local(info);
  if (info.master_addr.empty() && !info.single_host()) read_slurm_meeting(env, info);
  info.job_id = core::join("slurm-", env.text("SLURM_JOB_ID").value_or("0"), "-",
                           env.text("SLURM_STEP_ID").value_or("0"), "-",
                           env.text("SLURM_RESTART_COUNT").value_or("0"));
  return info;
}

bool started_by_srun(const Environment& env) {
  if (!is_slurm_task(env)) return false;
  return env.integer_or("SLURM_STEP_NUM_TASKS", 1, kMaxRanks,
                        env.integer_or("SLURM_NTASKS", 1, kMaxRanks, 1)) > 1;
}

// SLURM's own PMI sets two of the names too; Hydra under SLURM sets all of them.
bool started_by_hydra(const Environment& env) {
  if (!env.has("PMI_RANK") || !env.has("PMI_SIZE")) return false;
  return env.has("MPI_LOCALRANKID") || !env.has("SLURM_STEP_ID");
}

}  // namespace

RankInfo rank_info_from_env(const EnvLookup& lookup) {
  const Environment env(lookup);
  if (env.has("WEFT_RANK")) return from_weft(env);
  if (env.has("RANK") || env.has("WORLD_SIZE")) return from_torchrun(env);
  if (env.has("OMPI_COMM_WORLD_RANK")) return from_openmpi(env);
  if (started_by_hydra(env)) return from_mpich(env);
  if (started_by_srun(env)) return from_slurm(env);
  RankInfo alone;
  alone.job_id = process_identity(getpid());
  return alone;
}

RankInfo rank_info_from_env() {
  return rank_info_from_env([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

}  // namespace weft::dist
