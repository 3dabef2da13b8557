#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace c10d {
class Store;
}

namespace weft::dist {

/// Meets all ranks of the job at `store`: exchanges who runs where, and checks that all are the
/// same weft with the same backend. Where the launcher gave no status page, the ranks of one host
/// share rank 0's. Collective over all ranks. Throws CommError naming the ranks that did not come
/// within `timeout`, or those that differ.
std::shared_ptr<const Peers> meet_ranks(c10d::Store& store, const RankInfo& info,
                                        const std::string& backend,
                                        std::chrono::milliseconds timeout);

}  // namespace weft::dist
