#include "weft/dist/rendezvous/handshake.h"

#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/sha256.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/store/remote_watch.h"
#include "weft/version.h"

namespace weft::dist {
namespace {

using core::CommError;

// The number is counted up when ranks of two builds of one version can no longer work together.
constexpr const char* kBuild = "weft-" WEFT_VERSION "-protocol-3-libtorch-" TORCH_VERSION;

std::string hello_key(int rank) { return "weft/hello/" + std::to_string(rank); }

// What a rank says first: build, backend, size, pid, start time, status page's fd, host.
struct Hello {
  std::string build = kBuild;
  std::string backend;
  int size = 0;
  pid_t pid = getpid();
  uint64_t start_time = process_start_time(getpid());
  int page_fd = -1;
  std::string host = host_name();

  std::string text() const {
    return core::join(build, ' ', backend, ' ', size, ' ', pid, ' ', start_time, ' ', page_fd, ' ',
                      host);
  }

  static Hello parse(int rank, const std::string& text) {
    Hello hello;
    std::istringstream fields(text);
    fields >> hello.build >> hello.backend >> hello.size >> hello.pid >> hello.start_time >>
        hello.page_fd >> hello.host;
    core::check<CommError>(!fields.fail(), "dist.World: rank ", rank,
                           ": expected a greeting of weft, got '", text.substr(0, 80), "'");
    return hello;
  }
};

[[noreturn]] void fail_to_come(int rank, const RankInfo& info, std::chrono::milliseconds timeout) {
  core::fail<CommError>("dist.World: rank ", rank, " of ", info.size, " did not come within ",
                        timeout.count() / 1000, " s; did it start? (WEFT_START_TIMEOUT_S)");
}

std::string read_hello(c10d::Store& store, int rank, const RankInfo& info,
                       StoreClock::time_point deadline, std::chrono::milliseconds timeout) {
  try {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - StoreClock::now());
    store.wait({hello_key(rank)}, std::max(left, std::chrono::milliseconds(1)));
    return store.get_to_str(hello_key(rank));
  } catch (const StoreTimeout&) {
    fail_to_come(rank, info, timeout);
  } catch (const core::Error&) {
    throw;
  } catch (const std::exception&) {
    fail_to_come(rank, info, timeout);
  }
}

// Rank 0's page, opened through /proc; null if that is not allowed, and then silence of a rank is
// noticed by the collective's timeout only.
void share_page_of(const Hello& first, const RankInfo& info) {
  const std::string path = core::join("/proc/", first.pid, "/fd/", first.page_fd);
  core::FileDescriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.is_open()) share_status_page(StatusPage::attach(std::move(fd), info.size), info.rank);
}

std::string identity_of(const Hello& hello) {
  return core::join("build ", hello.build, ", backend ", hello.backend, ", ", hello.size, " ranks");
}

// All ranks by the launcher's numbers, which become theirs.
std::vector<Peer> exchange_hellos(c10d::Store& store, const RankInfo& info, const Hello& own,
                                  std::chrono::milliseconds timeout) {
  store.set(hello_key(info.rank), own.text());
  const std::string ours = identity_of(own);
  std::vector<Peer> peers;
  const auto deadline = StoreClock::now() + timeout;
  for (int rank = 0; rank < info.size; ++rank) {
    const Hello hello = Hello::parse(rank, read_hello(store, rank, info, deadline, timeout));
    const std::string theirs = identity_of(hello);
    core::check<CommError>(theirs == ours, "dist.World: ranks differ: rank ", info.rank, " has ",
                           ours, "; rank ", rank, " has ", theirs,
                           "; start all ranks with the same program and options");
    peers.push_back({rank, hello.pid, hello.start_time, hello.host, rank});
    const bool needs_page = shared_status_page() == nullptr && info.single_host();
    if (needs_page && rank == 0 && info.rank != 0) share_page_of(hello, info);
  }
  return peers;
}

// The hosts in the order of their first ranks, and each host's ranks in the launcher's order.
void order_by_host(std::vector<Peer>& peers, RankInfo& info) {
  std::vector<std::string> hosts;
  for (const Peer& peer : peers) {
    if (std::find(hosts.begin(), hosts.end(), peer.host) == hosts.end()) hosts.push_back(peer.host);
  }
  const auto place = [&](const Peer& peer) {
    return std::find(hosts.begin(), hosts.end(), peer.host) - hosts.begin();
  };
  std::stable_sort(peers.begin(), peers.end(),
                   [&](const Peer& a, const Peer& b) { return place(a) < place(b); });
  bool is_moved = false;
  for (int rank = 0; rank < info.size; ++rank) {
    Peer& peer = peers[static_cast<size_t>(rank)];
    peer.rank = rank;
    is_moved = is_moved || peer.launcher_rank != rank;
    if (peer.launcher_rank == info.launcher_rank) info.rank = rank;
  }
  if (is_moved && info.rank == 0) {
    core::log(core::LogLevel::kInfo, "ranks are numbered host by host, other than by ",
              info.launcher, ", so that neighbours share a host");
  }
}

// Drawn by rank 0, so that names of an attempt that was killed are not met again.
std::string attempt_of(c10d::Store& store, const RankInfo& info) {
  constexpr const char* kKey = "weft/attempt";
  constexpr size_t kBytes = 8;
  if (info.rank == 0) store.set(kKey, core::hex_text(core::random_bytes(kBytes)));
  return store.get_to_str(kKey);
}

std::unique_ptr<RemoteWatch> watch_through(const StoreEndpoint& endpoint, const RankInfo& info,
                                           const Peers& peers, std::chrono::milliseconds timeout) {
  RemoteWatchOptions options;
  options.self = {info.rank, peers.peer(info.rank).host, peers.name(info.rank), {}};
  options.doing = [] { return " " + describe_operation(own_status()); };
  if (info.store_is_served && info.launcher == "weft") {
    options.server = "the launcher on host " + peers.peer(0).host;
  } else {
    options.server = peers.name(0);
    options.server_rank = 0;
  }
  options.silence_limit = silence_limit();
  return std::make_unique<RemoteWatch>(
      connect_to_store(endpoint.address, endpoint.port, endpoint.key, StoreClock::now() + timeout),
      std::move(options));
}

}  // namespace

std::shared_ptr<const Peers> meet_ranks(const Meeting& meeting, RankInfo& info,
                                        const std::string& backend,
                                        std::chrono::milliseconds timeout) {
  Hello own;
  own.backend = backend;
  own.size = info.size;
  if (shared_status_page() == nullptr && info.single_host() && info.rank == 0) {
    share_status_page(StatusPage::create(info.size), 0);
    own.page_fd = shared_status_page()->fd();
  }
  std::vector<Peer> ranks = exchange_hellos(*meeting.store, info, own, timeout);
  own_status().pid.store(getpid());
  if (meeting.endpoint && info.launcher != "weft") {
    info.job_id += "-" + attempt_of(*meeting.store, info);
  }
  if (!info.single_host()) order_by_host(ranks, info);
  const auto peers = std::make_shared<Peers>(std::move(ranks), info.rank, shared_status_page());
  if (meeting.endpoint && !info.single_host()) {
    peers->watch_remote(watch_through(*meeting.endpoint, info, *peers, timeout));
  }
  return peers;
}

}  // namespace weft::dist
