// Ranks that torchrun has started again, at torchrun's own store.
#include <gtest/gtest.h>

#include <future>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "weft/core/error.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/store/server.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

// The store of one attempt, as its rank 0 serves it.
struct Attempt {
  int port = 0;
  core::FileDescriptor socket = listen_on_loopback(port);
  StoreServer server{std::move(socket), {"", "left", 5s}};
};

RankInfo rank_one(int port) {
  RankInfo info;
  info.rank = info.launcher_rank = 1;
  info.size = 2;
  info.launcher = "torchrun";
  info.master_addr = "127.0.0.1";
  info.master_port = port;
  info.store_is_served = true;
  return info;
}

TEST(TorchrunMeeting, ARestartedRankDoesNotStayWithAnAttemptWhoseRankZeroStillRuns) {
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.waitWorkers = false;
  const auto agents = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const auto publish = [&](const Attempt& attempt) {
    static_cast<c10d::Store&>(*agents).set("weft/meeting", core::join("127.0.0.1 ", attempt.port));
  };
  const Attempt first;
  publish(first);
  RankInfo info = rank_one(agents->getPort());
  const Meeting killed = open_store(info, 20s);
  EXPECT_EQ(killed.endpoint->port, first.port);

  const Attempt second;
  auto late = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(600ms);
    publish(second);
  });
  const Meeting met = open_store(info, 20s);
  EXPECT_EQ(met.endpoint->port, second.port);
  late.get();
}

}  // namespace
}  // namespace weft::dist
