#include "weft/dist/store/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

core::FileDescriptor new_socket(int family, int& error) {
  core::FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) error = errno;
  return socket;
}

void set_option(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof(value));
}

core::FileDescriptor begin_listening(core::FileDescriptor socket, const SocketAddress& address,
                                     int& error) {
  if (!socket.is_open()) return socket;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(socket.get(), address.get(), address.length()) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    error = errno;
    socket.reset();
  }
  return socket;
}

bool is_link_local(const SocketAddress& address) {
  if (address.family() != AF_INET6) return false;
  const auto* six = reinterpret_cast<const sockaddr_in6*>(address.get());
  return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, unsigned length)
    : bytes_(reinterpret_cast<const char*>(address), length) {}

int SocketAddress::family() const { return bytes_.empty() ? AF_UNSPEC : get()->sa_family; }

int SocketAddress::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(get())->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(get())->sin_port);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(get());
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
  }
  constexpr uint32_t kLoopbackNet = 127;
  const auto* four = reinterpret_cast<const sockaddr_in*>(get());
  return family() == AF_INET && ntohl(four->sin_addr.s_addr) >> 24 == kLoopbackNet;
}

std::string SocketAddress::text() const {
  std::array<char, NI_MAXHOST> host{};
  getnameinfo(get(), length(), host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

std::string endpoint_text(const std::string& address, int port) {
  const bool has_colon = address.find(':') != std::string::npos;
  return has_colon ? core::join('[', address, "]:", port) : core::join(address, ':', port);
}

std::vector<SocketAddress> addresses_of(const std::string& host, int port, std::string& problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    problem = gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<SocketAddress> all;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    all.emplace_back(each->ai_addr, each->ai_addrlen);
  }
  return all;
}

std::vector<SocketAddress> addresses_until(const std::string& host, int port,
                                           std::chrono::steady_clock::time_point deadline,
                                           std::string& problem) {
  constexpr auto kPause = 200ms;
  while (true) {
    std::vector<SocketAddress> found = addresses_of(host, port, problem);
    if (!found.empty() || std::chrono::steady_clock::now() + kPause >= deadline) return found;
    std::this_thread::sleep_for(kPause);
  }
}

core::FileDescriptor listen_at(const SocketAddress& address, int& error) {
  return begin_listening(new_socket(address.family(), error), address, error);
}

core::FileDescriptor listen_everywhere(int port, int& error) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  core::FileDescriptor socket = new_socket(AF_INET6, error);
  if (socket.is_open()) {
    set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const SocketAddress any(reinterpret_cast<const sockaddr*>(&six), sizeof(six));
    return begin_listening(std::move(socket), any, error);
  }
  // A kernel without IPv6.
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  return listen_at({reinterpret_cast<const sockaddr*>(&four), sizeof(four)}, error);
}

SocketAddress own_end(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

void tune_connection(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  give_up_after(socket, 0ms);
}

void give_up_after(int socket, std::chrono::milliseconds silence) {
  constexpr auto kMore = 5000ms;
  constexpr std::chrono::milliseconds kLeast = 10s;
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(24 * 20);
  const bool never = silence > kMost;
  const auto time = never ? 0ms : std::max(kLeast, silence + kMore);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(time.count()));
}

core::FileDescriptor connect_within(const SocketAddress& address, std::chrono::milliseconds time,
                                    std::string& problem) {
  int error = 0;
  core::FileDescriptor socket = new_socket(address.family(), error);
  if (socket.is_open()) {
    tune_connection(socket.get());
    error = ::connect(socket.get(), address.get(), address.length()) == 0 ? 0 : errno;
  }
  if (error == EINPROGRESS) {
    pollfd done{socket.get(), POLLOUT, 0};
    socklen_t length = sizeof(error);
    error = ETIMEDOUT;
    if (::poll(&done, 1, static_cast<int>(time.count())) > 0) {
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) {
    problem = std::strerror(error);
    socket.reset();
  }
  return socket;
}

std::vector<SocketAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<SocketAddress> all;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const unsigned length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const SocketAddress address(each->ifa_addr, length);
    if (!address.is_loopback() && !is_link_local(address)) all.push_back(address);
  }
  return all;
}

}  // namespace weft::dist
