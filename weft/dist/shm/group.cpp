// How the ranks of a group come to share a segment.
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
// By name, or by a handle behind it.
constexpr const char* kReady = "ready";
constexpr const char* kUnnamed = "ready ";
// Asked for by a rank that the handle does not help, and given.
constexpr const char* kNameWanted = "shm name wanted";
constexpr const char* kNamed = "shm named";

// The name goes as soon as nobody needs it.
class NameGuard {
 public:
  explicit NameGuard(std::string name) : name_(std::move(name)) {}
  NameGuard(const NameGuard&) = delete;
  NameGuard& operator=(const NameGuard&) = delete;
  ~NameGuard() { unlink_shm(name_); }

 private:
  std::string name_;
};

// Gives the segment its name, once a rank wants it.
class NameOnDemand {
 public:
  NameOnDemand(const ShmSegment& segment, const GroupRequest& request)
      : segment_(segment), request_(request) {}

  void look() {
    constexpr auto kPeriod = std::chrono::milliseconds(20);
    const auto now = std::chrono::steady_clock::now();
    if (name_ || now - looked_ < kPeriod) return;
    looked_ = now;
    if (!request_.store->check({kNameWanted})) return;
    const std::string name = shm_name(request_.info.job_id, request_.id);
    segment_.link(name);
    name_.emplace(name);
    request_.store->set(kNamed, std::string(kReady));
  }

 private:
  const ShmSegment& segment_;
  const GroupRequest& request_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  std::optional<NameGuard> name_;
};

// All ranks wait, so that none ends in order while another still looks whether it came. `look` is
// called again and again meanwhile.
void wait_until_mapped(const ShmSegment& segment, const GroupRequest& request,
                       const std::function<void()>& look) {
  PeerWatch watch(request.monitor->peers(), request.monitor->world_ranks());
  const auto deadline = std::chrono::steady_clock::now() + request.start_timeout;
  const auto all_came = [&] { return segment.header().mapped.load() >= request.size; };
  while (!all_came()) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    look();
    const auto trouble = watch.trouble();
    // The last may have come, done its work and ended since it was looked for.
    if (all_came()) return;
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
    std::optional<ShmSegment> segment = ShmSegment::create_unnamed(layout);
    std::optional<NameGuard> guard;
    std::string ready = kReady;
    if (segment) {
      ready = kUnnamed + segment->handle();
    } else {
      segment.emplace(ShmSegment::create(name, layout));
      guard.emplace(name);
    }
    segment->header().mapped.fetch_add(1);
    request.store->set(kAnnouncement, ready);
    NameOnDemand name_on_demand(*segment, request);
    wait_until_mapped(*segment, request, [&] { name_on_demand.look(); });
    segment->close_handle();
    return std::move(*segment);
  } catch (const core::Error& error) {
    // The others wait for the announcement and fail with the same words.
    request.store->set(kAnnouncement, std::string(error.what()));
    throw;
  }
}

// Of a rank that can't see rank 0's descriptors, as it is in another container.
void want_name(const GroupRequest& request) {
  request.store->set(kNameWanted, std::string(kReady));
  try {
    request.store->wait({kNamed}, request.start_timeout);
  } catch (const std::exception&) {
    core::fail<CommError>("dist.World: group ", request.monitor->name(), ": ",
                          request.monitor->peer_name(0),
                          " did not name its memory in time (WEFT_START_TIMEOUT_S)");
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
  const bool is_unnamed = announced.starts_with(kUnnamed);
  if (announced != kReady && !is_unnamed) throw CommError(announced);
  std::optional<ShmSegment> found =
      is_unnamed
          ? ShmSegment::open_handle(announced.substr(std::string_view(kUnnamed).size()), layout)
          : std::nullopt;
  if (is_unnamed && !found) want_name(request);
  ShmSegment segment = found ? std::move(*found)
                             : ShmSegment::open(shm_name(request.info.job_id, request.id), layout);
  segment.header().mapped.fetch_add(1);
  wait_until_mapped(segment, request, [] {});
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
