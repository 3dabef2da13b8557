#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "weft/core/files/file.h"

struct sockaddr;

namespace weft::dist {

/// One address and port, of IPv4 or IPv6.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, unsigned length);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(bytes_.data()); }
  unsigned length() const { return static_cast<unsigned>(bytes_.size()); }
  int family() const;
  int port() const;
  bool is_loopback() const;
  /// As people write it, without the port: "10.0.0.1", "fd00::1".
  std::string text() const;

 private:
  std::string bytes_;
};

/// "10.0.0.1:29500", "[fd00::1]:29500".
std::string endpoint_text(const std::string& address, int port);

/// All addresses that `host`, a name or an address, stands for. Empty if there is none; then
/// `problem` says why.
std::vector<SocketAddress> addresses_of(const std::string& host, int port, std::string& problem);

/// The same, tried again until `deadline` where there is none: a name may become known late.
std::vector<SocketAddress> addresses_until(const std::string& host, int port,
                                           std::chrono::steady_clock::time_point deadline,
                                           std::string& problem);

/// A socket that listens at `address` only. Errors as std::error_code's number in `error`, and then
/// it is not open.
core::FileDescriptor listen_at(const SocketAddress& address, int& error);

/// A socket that listens at `port` of all interfaces, of IPv6 and IPv4. As above.
core::FileDescriptor listen_everywhere(int port, int& error);

/// The address of a socket's own end.
SocketAddress own_end(int socket);

/// A socket that is connected to `address` within `time`; not open if that fails, and then
/// `problem` says why. It does not block, sends small messages at once, and gives up on a peer that
/// acknowledges nothing for ten seconds.
core::FileDescriptor connect_within(const SocketAddress& address, std::chrono::milliseconds time,
                                    std::string& problem);

/// Sets what connect_within sets, for an accepted socket.
void tune_connection(int socket);

/// The connection outlives a peer that acknowledges nothing for `silence`, and some seconds more;
/// the least are ten. max(): as long as the system lets it.
void give_up_after(int socket, std::chrono::milliseconds silence);

/// Addresses of this host's interfaces that are up, loopback and link-local ones left out.
std::vector<SocketAddress> interface_addresses();

}  // namespace weft::dist
