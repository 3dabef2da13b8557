#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/rendezvous/rank_info.h"
#include "weft/dist/rendezvous/rendezvous.h"

namespace weft::dist {

/// What a rank has and expects every other to have as well.
struct CommonTerms {
  /// A row of the backend table, with how calls are checked.
  std::string backend;
  /// As WorldOptions::arguments.
  std::vector<std::string> arguments;
};

/// Meets all ranks of the job at `meeting`: exchanges who runs where, and checks that all are the
/// same weft with the same terms. On several hosts `info.rank` becomes the rank's place in an
/// order that keeps the ranks of each host together, whatever the launcher's order is, and ranks
/// begin to watch over each other through the store. Where the launcher gave no status page, the
/// ranks of one host share rank 0's. `info.job_id` gets a part that each attempt of a job has anew.
/// Collective over all ranks. Throws CommError naming the ranks that did not come within `timeout`,
/// or those that differ.
std::shared_ptr<const Peers> meet_ranks(const Meeting& meeting, RankInfo& info,
                                        const CommonTerms& terms,
                                        std::chrono::milliseconds timeout);

}  // namespace weft::dist
