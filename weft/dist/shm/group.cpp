// How the ranks of a group come to share a segment.
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/block_backend.h"
#include "weft/dist/launch/shm_names.h"
#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/shm/transport.h"

namespace weft::dist {
namespace {

using core::CommError;

constexpr const char* kAnnouncement = "shm";
constexpr const char* kReady = "ready";

// The name goes as soon as nobody needs it, so that nothing is left behind however the job ends.
class NameGuard {
 public:
  explicit NameGuard(std::string name) : name_(std::move(name)) {}
  NameGuard(const NameGuard&) = delete;
  NameGuard& operator=(const NameGuard&) = delete;
  ~NameGuard() { unlink_shm(name_); }

 private:
  std::string name_;
};

void wait_until_mapped(const ShmSegment& segment, const GroupRequest& request) {
  PeerWatch watch(request.monitor->peers(), request.monitor->world_ranks());
  const auto deadline = std::chrono::steady_clock::now() + request.start_timeout;
  while (segment.header().mapped.load() < request.size) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    const auto trouble = watch.trouble();
    core::check<CommError>(!trouble, "dist.World: group ", request.monitor->name(), ": ",
                           trouble.value_or(""));
    core::check<CommError>(std::chrono::steady_clock::now() < deadline, "dist.World: group ",
                           request.monitor->name(), ": only ", segment.header().mapped.load(),
                           " of ", request.size, " ranks came (WEFT_START_TIMEOUT_S)");
  }
}

ShmSegment create_and_announce(const GroupRequest& request, const ShmLayout& layout) {
  const std::string name = shm_name(request.info.job_id, request.id);
  try {
    ShmSegment segment = ShmSegment::create(name, layout);
    const NameGuard guard(name);
    segment.header().mapped.fetch_add(1);
    request.store->set(kAnnouncement, std::string(kReady));
    wait_until_mapped(segment, request);
    return segment;
  } catch (const core::Error& error) {
    // The others wait for the announcement and fail with the same words.
    request.store->set(kAnnouncement, std::string(error.what()));
    throw;
  }
}

ShmSegment open_announced(const GroupRequest& request, const ShmLayout& layout) {
  std::string announced;
  try {
    request.store->wait({kAnnouncement}, request.start_timeout);
    announced = request.store->get_to_str(kAnnouncement);
  } catch (const std::exception&) {
    core::fail<CommError>("dist.World: group ", request.monitor->name(), ": ",
                          request.monitor->peer_name(0),
                          " did not make it in time (WEFT_START_TIMEOUT_S)");
  }
  if (announced != kReady) throw CommError(announced);
  ShmSegment segment = ShmSegment::open(shm_name(request.info.job_id, request.id), layout);
  segment.header().mapped.fetch_add(1);
  return segment;
}

}  // namespace

std::unique_ptr<ShmTransport> make_shm_transport(const GroupRequest& request) {
  const ShmLayout layout(request.size);
  ShmSegment segment =
      request.rank == 0 ? create_and_announce(request, layout) : open_announced(request, layout);
  return std::make_unique<ShmTransport>(std::move(segment), request.rank, request.monitor);
}

GroupHandles make_shm_group(const GroupRequest& request) {
  return make_block_group(request, "shm", make_shm_transport(request));
}

}  // namespace weft::dist
