// How a client finds the store, which may not listen yet, under a name that may not be known yet.
#include <algorithm>
#include <thread>

#include "weft/core/error.h"
#include "weft/dist/store/sockets.h"
#include "weft/dist/store/wire.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

// A first packet may get lost while the network of a host comes up, so each try is short.
constexpr auto kOneTry = 2000ms;
constexpr auto kTryPause = 100ms;

// One try; not open if it fails, and then `problem` says why.
core::FileDescriptor try_to_connect(const std::string& host, int port, std::string_view key,
                                    StoreClock::time_point deadline, std::string& problem) {
  for (const SocketAddress& address : addresses_of(host, port, problem)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - StoreClock::now());
    const auto time = std::clamp<std::chrono::milliseconds>(left, 1ms, kOneTry);
    core::FileDescriptor socket = connect_within(address, time, problem);
    if (!socket.is_open()) continue;
    try {
      prove_key(socket.get(), key, endpoint_text(host, port), StoreClock::now() + kAnswerTime);
      return socket;
    } catch (const core::CommError& error) {
      problem = error.what();
    }
  }
  return {};
}

}  // namespace

core::FileDescriptor connect_to_store(const std::string& address, int port, std::string_view key,
                                      StoreClock::time_point deadline) {
  std::string problem;
  while (true) {
    core::FileDescriptor socket = try_to_connect(address, port, key, deadline, problem);
    if (socket.is_open()) return socket;
    if (StoreClock::now() + kTryPause >= deadline) break;
    std::this_thread::sleep_for(kTryPause);
  }
  core::fail<core::CommError>("dist.rendezvous: ", endpoint_text(address, port),
                              ": nobody answers (", problem, "); did rank 0 start there?");
}

}  // namespace weft::dist
