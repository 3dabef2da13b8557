#include "weft/dist/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"

namespace weft::dist {
namespace {

using core::CommError;
using core::ConfigError;
using core::fail;

[[noreturn]] void fail_bind(const std::string& address, int port, int error) {
  if (error == EADDRINUSE) {
    fail<core::IoError>("weft launch: port ", port, " on ", address,
                        " is in use; choose another port");
  }
  core::fail_errno("weft launch", core::join("listening on ", address, ":", port), error);
}

sockaddr_in resolve(const char* what, const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  core::check<ConfigError>(error == 0, what, ": expected a host's name or address, got '", host,
                           "': ", gai_strerror(error));
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  return address;
}

// torchrun and weft launch serve the store themselves; then every rank is a client.
bool launcher_serves_store() {
  const char* value = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return value != nullptr && std::string(value) == "True";
}

c10::intrusive_ptr<c10d::Store> open_tcp_store(const RankInfo& info,
                                               std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(info.master_port);
  options.isServer = info.rank == 0 && !launcher_serves_store();
  options.waitWorkers = false;
  options.timeout = timeout;
  core::FileDescriptor socket;
  if (options.isServer && (info.master_addr == "127.0.0.1" || info.master_addr == "localhost")) {
    int port = info.master_port;
    socket = listen_on_loopback(port);
    options.masterListenFd = socket.release();
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(info.master_addr, options);
  } catch (const std::exception&) {
    fail<CommError>("dist.rendezvous: ", info.master_addr, ":", info.master_port,
                    options.isServer ? ": rank 0 cannot listen there; is the port in use?"
                                     : ": nobody answers; did rank 0 start?");
  }
}

// A folder that is this user's alone: names in the temporary folder can be guessed by all.
std::filesystem::path private_folder() {
  const auto folder = std::filesystem::temp_directory_path() / core::join("weft-", geteuid());
  mkdir(folder.c_str(), 0700);
  struct stat info {};
  const bool ours = lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                    info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  core::check<core::IoError>(ours, "dist.rendezvous: ", folder.string(),
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

core::FileDescriptor listen_on_loopback(int& port) { return listen_on("127.0.0.1", port); }

core::FileDescriptor listen_on(const std::string& where, int& port) {
  sockaddr_in address = resolve("weft launch: address", where, port);
  core::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) core::fail_errno("weft launch", "socket", errno);
  const int yes = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), generic, length) != 0 || listen(socket.get(), SOMAXCONN) != 0 ||
      getsockname(socket.get(), generic, &length) != 0) {
    fail_bind(where, port, errno);
  }
  port = ntohs(address.sin_port);
  return socket;
}

std::string own_address(const RankInfo& info) {
  constexpr const char* kLoopback = "127.0.0.1";
  if (info.single_host() || info.master_addr.empty()) return kLoopback;
  if (const char* chosen = std::getenv("WEFT_ADDRESS")) return chosen;
  sockaddr_in master = resolve("dist.rendezvous: MASTER_ADDR", info.master_addr, info.master_port);
  // Nothing is sent: the kernel only chooses the way, and with it this end's address.
  const core::FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t length = sizeof(own);
  const bool known =
      connect(socket.get(), reinterpret_cast<sockaddr*>(&master), sizeof(master)) == 0 &&
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0;
  core::check<ConfigError>(known, "dist.rendezvous: MASTER_ADDR: there is no way to ",
                           info.master_addr, ": ", std::strerror(errno));
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &own.sin_addr, text.data(), text.size());
  return text.data();
}

c10::intrusive_ptr<c10d::Store> serve_store(core::FileDescriptor socket, const std::string& address,
                                            int port, std::chrono::milliseconds timeout) {
  quiet_c10d();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  options.masterListenFd = socket.release();
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

c10::intrusive_ptr<c10d::Store> find_store(const std::string& address, int port,
                                           std::chrono::milliseconds timeout) {
  quiet_c10d();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(address, options);
}

c10::intrusive_ptr<c10d::Store> open_store(const RankInfo& info,
                                           std::chrono::milliseconds timeout) {
  if (!info.master_addr.empty()) return open_tcp_store(info, timeout);
  core::check<ConfigError>(info.single_host(), "dist.rendezvous: ", info.size, " ranks, ",
                           info.local_size, " of them on this host, started by ", info.launcher,
                           ", don't know where to meet; set MASTER_ADDR to the host of rank 0 and "
                           "MASTER_PORT to a free port there");
  const auto path = store_path(info);
  if (info.rank == 0) remove_old_stores(path.parent_path());
  auto store = c10::make_intrusive<c10d::FileStore>(path.string(), info.size);
  store->setTimeout(timeout);
  return store;
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
