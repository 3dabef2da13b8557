// Where this process listens, and under which address others reach it.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/store/sockets.h"

namespace weft::dist {
namespace {

using core::check;
using core::ConfigError;
using core::fail;

constexpr const char* kLoopback = "127.0.0.1";

[[noreturn]] void fail_bind(const std::string& address, int port, int error) {
  if (error == EADDRINUSE) {
    fail<core::IoError>("weft launch: port ", port, " on ", address,
                        " is in use; choose another port");
  }
  core::fail_errno("weft launch", core::join("listening on ", endpoint_text(address, port)), error);
}

SocketAddress first_address(const char* what, const std::string& host, int port,
                            std::chrono::milliseconds patience = {}) {
  std::string problem;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto found = addresses_until(host, port, deadline, problem);
  check<ConfigError>(!found.empty(), what, ": expected a host's name or address, got '", host,
                     "': ", problem);
  return found.front();
}

// Nothing is sent: the kernel only chooses the way, and with it this end's address.
SocketAddress address_on_the_way(const SocketAddress& to, const std::string& name) {
  const core::FileDescriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  check<ConfigError>(connect(socket.get(), to.get(), to.length()) == 0,
                     "dist.rendezvous: MASTER_ADDR: there is no way to ", name, ": ",
                     std::strerror(errno));
  return own_end(socket.get());
}

// The other hosts know this one by a name that is its own loopback here, as Debian sets up.
std::string only_interface(const std::string& master, int family) {
  std::vector<SocketAddress> all = interface_addresses();
  std::erase_if(all, [family](const SocketAddress& each) { return each.family() != family; });
  check<ConfigError>(all.size() == 1, "dist.rendezvous: ", master,
                     " is this host's own loopback, and it has ", all.size(),
                     " other addresses, expected 1; set WEFT_ADDRESS to the address under which "
                     "the other hosts reach this one");
  return all.front().text();
}

}  // namespace

core::FileDescriptor listen_on_loopback(int& port) { return listen_on(kLoopback, port); }

core::FileDescriptor listen_on(const std::string& where, int& port,
                               std::chrono::milliseconds patience) {
  int error = 0;
  core::FileDescriptor socket =
      listen_at(first_address("weft launch: address", where, port, patience), error);
  if (!socket.is_open()) fail_bind(where, port, error);
  port = own_end(socket.get()).port();
  return socket;
}

std::string own_address(const RankInfo& info) {
  if (info.single_host() || info.master_addr.empty()) return kLoopback;
  if (const char* chosen = std::getenv("WEFT_ADDRESS")) return chosen;
  const SocketAddress master =
      first_address("dist.rendezvous: MASTER_ADDR", info.master_addr, info.master_port);
  const SocketAddress own = address_on_the_way(master, info.master_addr);
  // Where loopback itself is named all hosts are this machine.
  const bool is_address = info.master_addr == master.text() || info.master_addr == "localhost";
  if (is_address || !own.is_loopback()) return own.text();
  return only_interface(info.master_addr, own.family());
}

}  // namespace weft::dist
