#include "weft/dist/rendezvous/handshake.h"

#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"
#include "weft/version.h"

namespace weft::dist {
namespace {

using core::CommError;

// The number is counted up when ranks of two builds of one version can no longer work together.
constexpr const char* kBuild = "weft-" WEFT_VERSION "-protocol-2-libtorch-" TORCH_VERSION;

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

std::string read_hello(c10d::Store& store, int rank, const RankInfo& info,
                       std::chrono::milliseconds timeout) {
  try {
    store.wait({hello_key(rank)}, timeout);
    return store.get_to_str(hello_key(rank));
  } catch (const std::exception&) {
    core::fail<CommError>("dist.World: rank ", rank, " of ", info.size, " did not come within ",
                          timeout.count() / 1000, " s; did it start? (WEFT_START_TIMEOUT_S)");
  }
}

// Rank 0's page, opened through /proc; null if that is not allowed, and then silence of a rank is
// noticed by the collective's timeout only.
void share_page_of(const Hello& first, const RankInfo& info) {
  const std::string path = core::join("/proc/", first.pid, "/fd/", first.page_fd);
  core::FileDescriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.is_open()) share_status_page(StatusPage::attach(std::move(fd), info.size), info.rank);
}

}  // namespace

std::shared_ptr<const Peers> meet_ranks(c10d::Store& store, const RankInfo& info,
                                        const std::string& backend,
                                        std::chrono::milliseconds timeout) {
  const bool need_page = shared_status_page() == nullptr && info.single_host();
  Hello own;
  own.backend = backend;
  own.size = info.size;
  if (need_page && info.rank == 0) {
    share_status_page(StatusPage::create(info.size), 0);
    own.page_fd = shared_status_page()->fd();
  }
  store.set(hello_key(info.rank), own.text());
  std::vector<Peer> peers;
  for (int rank = 0; rank < info.size; ++rank) {
    const Hello hello = Hello::parse(rank, read_hello(store, rank, info, timeout));
    const auto identity = [](const Hello& h) {
      return core::join("build ", h.build, ", backend ", h.backend, ", ", h.size, " ranks");
    };
    core::check<CommError>(identity(hello) == identity(own), "dist.World: ranks differ: rank ",
                           info.rank, " has ", identity(own), "; rank ", rank, " has ",
                           identity(hello), "; start all ranks with the same program and options");
    peers.push_back({rank, hello.pid, hello.start_time, hello.host});
    if (need_page && rank == 0 && info.rank != 0) share_page_of(hello, info);
  }
  own_status().pid.store(getpid());
  return std::make_shared<Peers>(std::move(peers), info.rank, shared_status_page());
}

}  // namespace weft::dist
