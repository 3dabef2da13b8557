#pragma once

#include <optional>
#include <string>

#include "weft/dist/rendezvous/rank_info.h"

namespace weft::dist {

/// The place of one `weft launch` among those of the other hosts.
struct HostPlace {
  int num_hosts = 1;
  int host = 0;
  /// Of host 0, as all hosts reach it.
  std::string address;
  int port = 0;
  /// Who has said so: "SLURM", "LeaderWorkerSet" or "JobSet".
  std::string source;
};

/// The place that a cluster's manager gives to this process, if it starts one launcher on each
/// host: a step of srun with one task per node, a LeaderWorkerSet, or a JobSet or Indexed Job whose
/// pods are told their number in WEFT_HOSTS. Nothing for a single host, and inside a rank. Throws
/// ConfigError for malformed variables.
/// Sources: srun(1); lws.sigs.k8s.io, "Environment variables"; kubernetes.io, "Indexed Job";
/// jobset.sigs.k8s.io, names of pods.
std::optional<HostPlace> host_place_from_env(const EnvLookup& lookup);
/// The same from this process's own environment.
std::optional<HostPlace> host_place_from_env();

}  // namespace weft::dist
