#include "weft/dist/rendezvous/handshake.h"

#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/core/log.h"
#include "weft/core/sha256.h"
#include "weft/core/terminal/printable.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/store/remote_watch.h"
#include "weft/version.h"

namespace weft::dist {
namespace {

using core::CommError;

// The number is counted up when ranks of two builds of one version can no longer work together.
constexpr const char* kBuild = "weft-" WEFT_VERSION "-protocol-5-libtorch-" TORCH_VERSION;

std::string hello_key(int rank) { return "weft/hello/" + std::to_string(rank); }
std::string arguments_key(int rank) { return "weft/arguments/" + std::to_string(rank); }

std::string as_text(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : arguments) text += argument + '\0';
  return text;
}

std::vector<std::string> from_text(const std::string& text) {
  std::vector<std::string> arguments;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, '\0');) arguments.push_back(line);
  return arguments;
}

// What a rank says first: build, backend, a digest of its arguments, size, pid, start time, status
// page's fd and what file that is, host.
struct Hello {
  std::string build = kBuild;
  std::string backend;
  std::string arguments;
  int size = 0;
  pid_t pid = getpid();
  uint64_t start_time = process_start_time(getpid());
  int page_fd = -1;
  uint64_t page_device = 0;
  uint64_t page_inode = 0;
  std::string host = host_name();

  std::string text() const {
    return core::join(build, ' ', backend, ' ', arguments, ' ', size, ' ', pid, ' ', start_time,
                      ' ', page_fd, ' ', page_device, ' ', page_inode, ' ', host);
  }

  void offer_page(int fd) {
    struct stat info {};
    if (fstat(fd, &info) != 0) core::fail_errno("dist.World: status page", "fstat", errno);
    page_fd = fd;
    page_device = info.st_dev;
    page_inode = info.st_ino;
  }

  static Hello parse(int rank, const std::string& text) {
    Hello hello;
    std::istringstream fields(text);
    fields >> hello.build >> hello.backend >> hello.arguments >> hello.size >> hello.pid >>
        hello.start_time >> hello.page_fd >> hello.page_device >> hello.page_inode >> hello.host;
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

// Rank 0's page, opened through /proc; null if that is not allowed or shows other processes, and
// then silence of a rank is noticed by the collective's timeout only.
void share_page_of(const Hello& first, const RankInfo& info) {
  core::FileDescriptor fd =
      open_descriptor_of(first.pid, first.page_fd, first.page_device, first.page_inode);
  if (fd.is_open()) share_status_page(StatusPage::attach(std::move(fd), info.size), info.rank);
}

std::string identity_of(const Hello& hello) {
  return core::join("build ", hello.build, ", backend ", hello.backend, ", ", hello.size, " ranks");
}

// The argument at `place`, and before a value the option that it is of.
std::string argument_text(const std::vector<std::string>& arguments, size_t place) {
  constexpr size_t kMaxShown = 80;
  if (place >= arguments.size()) return "nothing more";
  const std::string text = arguments[place].substr(0, kMaxShown);
  std::string option;
  if (place > 0 && arguments[place - 1].starts_with('-') && !text.starts_with('-')) {
    option = core::join(arguments[place - 1].substr(0, kMaxShown), ' ');
  }
  return core::join("'", core::printable(core::join(option, text)), "'");
}

// Rank 0, which may serve the store, stays until the others have read what they differ in.
void wait_for_readers(c10d::Store& store, const RankInfo& info) {
  constexpr std::chrono::seconds kPatience{2};
  const auto read_key = [](int rank) { return "weft/differs/" + std::to_string(rank); };
  store.set(read_key(info.rank), "read");
  if (info.rank != 0) return;
  std::vector<std::string> keys;
  for (int rank = 1; rank < info.size; ++rank) keys.push_back(read_key(rank));
  try {
    store.wait(keys, kPatience);
  } catch (const std::exception&) {
    // Somebody ended for a reason of its own; what this rank has to say stays the same.
  }
}

// What `hello`'s rank has otherwise. Of arguments the lower rank's stand first, so that both ranks
// say the same line.
std::string difference(c10d::Store& store, const RankInfo& info, const Hello& own, int rank,
                       const Hello& hello) {
  const std::string ours = identity_of(own);
  const std::string theirs = identity_of(hello);
  if (theirs != ours) {
    return core::join("rank ", info.rank, " has ", ours, "; rank ", rank, " has ", theirs);
  }
  const int low = std::min(rank, info.rank), high = std::max(rank, info.rank);
  const auto first = from_text(store.get_to_str(arguments_key(low)));
  const auto second = from_text(store.get_to_str(arguments_key(high)));
  size_t place = 0;
  while (place < first.size() && place < second.size() && first[place] == second[place]) ++place;
  return core::join("rank ", low, " was given ", argument_text(first, place), ", rank ", high, " ",
                    argument_text(second, place));
}

// All ranks by the launcher's numbers, which become theirs.
std::vector<Peer> exchange_hellos(c10d::Store& store, const RankInfo& info, const Hello& own,
                                  std::chrono::milliseconds timeout) {
  store.set(hello_key(info.rank), own.text());
  std::vector<Peer> peers;
  const auto deadline = StoreClock::now() + timeout;
  for (int rank = 0; rank < info.size; ++rank) {
    const Hello hello = Hello::parse(rank, read_hello(store, rank, info, deadline, timeout));
    if (identity_of(hello) != identity_of(own) || hello.arguments != own.arguments) {
      const std::string what = difference(store, info, own, rank, hello);
      wait_for_readers(store, info);
      core::fail<CommError>("dist.World: ranks differ: ", what,
                            "; start all ranks with the same program and options");
    }
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
  options.doing = [] { return core::join(' ', describe_operation(own_status())); };
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
                                        const CommonTerms& terms,
                                        std::chrono::milliseconds timeout) {
  Hello own;
  own.backend = terms.backend;
  own.size = info.size;
  const std::string arguments = as_text(terms.arguments);
  own.arguments = core::hex_text(core::sha256(arguments));
  // Before the greeting, so that who reads the one finds the other.
  meeting.store->set(arguments_key(info.rank), arguments);
  if (shared_status_page() == nullptr && info.single_host() && info.rank == 0) {
    share_status_page(StatusPage::create(info.size), 0);
    own.offer_page(shared_status_page()->fd());
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
