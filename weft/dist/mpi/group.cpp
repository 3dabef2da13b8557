// How the ranks of a group come to share communicators.
#include "weft/dist/mpi/group.h"

#include <charconv>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/block_backend.h"
#include "weft/dist/mpi/transport.h"

namespace weft::dist {
namespace {

// MPI waits for all ranks of a group with its eyes shut, so they first meet in the store.
void meet(const GroupRequest& request) {
  const auto key = [](int rank) { return "mpi/" + std::to_string(rank); };
  request.store->set(key(request.rank), std::string("here"));
  for (int rank = 0; rank < request.size; ++rank) {
    try {
      request.store->wait({key(rank)}, request.start_timeout);
    } catch (const std::exception&) {
      core::fail<core::CommError>("dist.World: group ", request.monitor->name(), ": ",
                                  request.monitor->peer_name(rank),
                                  " did not make it in time (WEFT_START_TIMEOUT_S)");
    }
  }
}

// Two tags for each group, within the least range that MPI promises. The same tag again is no harm:
// a rank makes one group after the other.
int tag_of(const std::string& id) {
  int number = 0;
  std::from_chars(id.data(), id.data() + id.size(), number);
  return 2 * (number % 16'000);
}

}  // namespace

GroupHandles make_mpi_group(const GroupRequest& request) {
  meet(request);
  MpiRuntime& runtime = MpiRuntime::start(request.info, request.monitor);
  auto transport = std::make_unique<MpiTransport>(runtime, request.monitor, tag_of(request.id));
  return make_block_group(request, "mpi", std::move(transport));
}

}  // namespace weft::dist
