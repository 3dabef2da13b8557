#include "weft/dist/rendezvous/rendezvous.h"

#include <c10/util/Logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/store/job_key.h"
#include "weft/dist/store/server.h"
#include "weft/dist/store/sockets.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;
using core::CommError;
using core::fail;

constexpr const char* kRendezvous = "dist.rendezvous: ";
// In torchrun's store, which outlives an attempt: each rank 0 writes anew where its own listens.
constexpr const char* kMeetingKey = "weft/meeting";

// Where other hosts are to come but the name means loopback here, or an address that this host does
// not have itself (behind NAT), all interfaces are listened on.
core::FileDescriptor listen_as_rank_zero(const RankInfo& info, int& port,
                                         std::chrono::milliseconds timeout) {
  std::string problem;
  int error = 0;
  core::FileDescriptor socket;
  const auto found = addresses_until(info.master_addr, port, StoreClock::now() + timeout, problem);
  core::check<core::ConfigError>(!found.empty(), kRendezvous, "MASTER_ADDR: ", info.master_addr,
                                 ": ", problem);
  const bool everywhere = found.front().is_loopback() && !info.single_host();
  if (!everywhere) socket = listen_at(found.front(), error);
  if (everywhere || error == EADDRNOTAVAIL) socket = listen_everywhere(port, error);
  if (!socket.is_open()) {
    fail<CommError>(kRendezvous, endpoint_text(info.master_addr, port),
                    ": rank 0 cannot listen there: ", std::strerror(error),
                    "; choose another MASTER_PORT");
  }
  port = own_end(socket.get()).port();
  return socket;
}

std::shared_ptr<StoreServer> serve(core::FileDescriptor socket, const std::string& key) {
  return std::make_shared<StoreServer>(std::move(socket),
                                       StoreServerOptions{key, host_name(), silence_limit()});
}

Meeting join_at(StoreEndpoint endpoint, std::shared_ptr<StoreServer> server,
                std::chrono::milliseconds timeout) {
  Meeting meeting;
  meeting.server = std::move(server);
  meeting.store = c10::make_intrusive<StoreClient>(endpoint, timeout);
  meeting.endpoint = std::move(endpoint);
  return meeting;
}

Meeting meet_at_master(const RankInfo& info, std::chrono::milliseconds timeout) {
  StoreEndpoint endpoint{info.master_addr, info.master_port, job_key_from_env()};
  std::shared_ptr<StoreServer> server;
  if (info.rank == 0 && !info.store_is_served) {
    server = serve(listen_as_rank_zero(info, endpoint.port, timeout), endpoint.key);
    if (!info.single_host()) {
      warn_without_key(endpoint.key, endpoint_text(endpoint.address, endpoint.port));
    }
  }
  return join_at(std::move(endpoint), std::move(server), timeout);
}

c10::intrusive_ptr<c10d::Store> torchruns_store(const RankInfo& info,
                                                std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(info.master_port);
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(info.master_addr, options);
  } catch (const std::exception&) {
    fail<CommError>(kRendezvous, endpoint_text(info.master_addr, info.master_port),
                    ": torchrun's store does not answer there; did torchrun start on the first "
                    "node?");
  }
}

// What is written there may be of an attempt that has ended: nobody answers at that address any
// more, or, where its rank 0 still runs, this rank has come there before. It is read again until
// this attempt's rank 0 has written.
Meeting find_meeting(c10d::Store& store, int rank, const std::string& key,
                     std::chrono::milliseconds timeout) {
  const auto deadline = StoreClock::now() + timeout;
  constexpr auto kTry = 1000ms;
  constexpr auto kPause = 200ms;
  std::string last = "rank 0 has not written where it listens";
  while (StoreClock::now() < deadline) {
    try {
      store.wait({kMeetingKey}, kTry);
      std::istringstream words(store.get_to_str(kMeetingKey));
      StoreEndpoint endpoint{{}, 0, key};
      words >> endpoint.address >> endpoint.port;
      // The short time is that of one try alone; the store itself has all of it.
      connect_to_store(endpoint.address, endpoint.port, key, StoreClock::now() + kTry);
      Meeting meeting = join_at(std::move(endpoint), nullptr, timeout);
      if (meeting.store->add(core::join("weft/came/", rank), 1) == 1) return meeting;
      last = core::join("rank ", rank, " has come there before");
      std::this_thread::sleep_for(kPause);
    } catch (const core::ConfigError&) {
      throw;
    } catch (const core::Error& error) {
      last = error.what();
    } catch (const std::exception&) {
      std::this_thread::sleep_for(kPause);
    }
  }
  fail<CommError>(kRendezvous, "the ranks did not meet within ", timeout / 1s, " s: ", last,
                  " (WEFT_START_TIMEOUT_S)");
}

Meeting meet_through_torchrun(const RankInfo& info, std::chrono::milliseconds timeout) {
  const auto store = torchruns_store(info, timeout);
  const std::string key = job_key_from_env();
  if (info.rank != 0) return find_meeting(*store, info.rank, key, timeout);
  StoreEndpoint endpoint{own_address(info), 0, key};
  auto server = serve(listen_on(endpoint.address, endpoint.port), key);
  store->set(kMeetingKey, core::join(endpoint.address, ' ', endpoint.port));
  if (!info.single_host()) warn_without_key(key, endpoint_text(endpoint.address, endpoint.port));
  return join_at(std::move(endpoint), std::move(server), timeout);
}

// Where rank 0 listens: under any of its addresses, and by a key that MPI alone carries.
std::string words_of_rank_zero(const StoreEndpoint& endpoint) {
  std::string words = core::join(endpoint.port, ' ', endpoint.key);
  for (const SocketAddress& address : interface_addresses()) words += " " + address.text();
  return words;
}

// The first of rank 0's addresses that this host reaches is its MASTER_ADDR from now on.
StoreEndpoint endpoint_from(const std::string& words, std::chrono::milliseconds timeout) {
  std::istringstream fields(words);
  StoreEndpoint endpoint;
  fields >> endpoint.port >> endpoint.key;
  const std::vector<std::string> addresses{std::istream_iterator<std::string>(fields), {}};
  const auto deadline = StoreClock::now() + timeout;
  while (StoreClock::now() < deadline) {
    for (const std::string& address : addresses) {
      endpoint.address = address;
      try {
        connect_to_store(address, endpoint.port, endpoint.key, StoreClock::now() + 1s);
        return endpoint;
      } catch (const CommError&) {
        continue;
      }
    }
  }
  fail<CommError>(kRendezvous, "rank 0 listens at port ", endpoint.port, " of ",
                  core::list_text(addresses), ", and answers at none of them");
}

Meeting meet_through_mpi(RankInfo& info, std::chrono::milliseconds timeout,
                         const BroadcastText& broadcast) {
  StoreEndpoint endpoint;
  std::shared_ptr<StoreServer> server;
  if (info.rank == 0) {
    int error = 0;
    core::FileDescriptor socket = listen_everywhere(0, error);
    if (!socket.is_open()) core::fail_errno("dist.rendezvous", "listening", error);
    endpoint.port = own_end(socket.get()).port();
    endpoint.key = new_job_key();
    server = serve(std::move(socket), endpoint.key);
  }
  const std::string words =
      broadcast(info, info.rank == 0 ? words_of_rank_zero(endpoint) : "", timeout);
  endpoint = endpoint_from(words, timeout);
  info.master_addr = endpoint.address;
  info.master_port = endpoint.port;
  return join_at(std::move(endpoint), std::move(server), timeout);
}

// A folder that is this user's alone: names in the temporary folder can be guessed by all.
std::filesystem::path private_folder() {
  const auto folder = std::filesystem::temp_directory_path() / core::join("weft-", geteuid());
  mkdir(folder.c_str(), 0700);
  struct stat info {};
  const bool ours = lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  core::check<core::IoError>(ours, kRendezvous, folder.string(),
                             ": expected a folder that only this user may use; remove it, or set "
                             "TMPDIR");
  return folder;
}

// Jobs that were killed leave their file; a day later nobody needs it.
void remove_old_stores(const std::filesystem::path& folder) {
  const auto limit = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const bool old = entry.last_write_time(ignored) < limit && !ignored;
    if (old && entry.path().extension() == ".store") {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

std::filesystem::path store_path(const RankInfo& info) {
  return private_folder() / (short_hash(info.job_id) + ".store");
}

}  // namespace

Meeting open_store(RankInfo& info, std::chrono::milliseconds timeout, const BroadcastText& by_mpi) {
  if (!info.master_addr.empty()) {
    const bool is_torchruns = info.store_is_served && info.launcher == "torchrun";
    return is_torchruns ? meet_through_torchrun(info, timeout) : meet_at_master(info, timeout);
  }
  if (!info.single_host()) {
    const bool has_mpi = info.launcher == "openmpi" || info.launcher == "mpich";
    core::check<core::ConfigError>(
        has_mpi && by_mpi != nullptr, kRendezvous, info.size, " ranks, ", info.local_size,
        " of them on this host, started by ", info.launcher,
        ", don't know where to meet; set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a "
        "free port there");
    return meet_through_mpi(info, timeout, by_mpi);
  }
  const auto path = store_path(info);
  if (info.rank == 0) remove_old_stores(path.parent_path());
  auto store = c10::make_intrusive<c10d::FileStore>(path.string(), info.size);
  store->setTimeout(timeout);
  return {nullptr, std::move(store), std::nullopt};
}

void remove_store(const RankInfo& info) {
  if (!info.master_addr.empty()) return;
  std::error_code ignored;
  std::filesystem::remove(store_path(info), ignored);
}

void quiet_c10d() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", 0);
  c10::initLogging();
}

}  // namespace weft::dist
