#include "weft/dist/launch/host_link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/store/client.h"
#include "weft/dist/store/server.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

constexpr const char* kLinkKey = "the key of these hosts";
constexpr auto kNever = std::chrono::milliseconds::max();

HostLink::Opener opener_of(const StoreEndpoint& endpoint) {
  return [endpoint](std::chrono::milliseconds time) -> c10::intrusive_ptr<c10d::Store> {
    return c10::make_intrusive<StoreClient>(endpoint, time);
  };
}

// How the job ended, once it did.
std::string end_text(HostLink& link) {
  for (int i = 0; i < 600 && !link.foreign_end(); ++i) std::this_thread::sleep_for(50ms);
  return link.foreign_end().value_or(ForeignEnd{}).text;
}

TEST(HostLink, SaysThatHostZeroNeverCame) {
  StoreEndpoint endpoint{"127.0.0.1", 0, kLinkKey};
  listen_on_loopback(endpoint.port);  // nobody listens there any more
  HostLink link(2, 1, "right", opener_of(endpoint), 100ms, 7s);
  const std::string where = "127.0.0.1:" + std::to_string(endpoint.port);
  EXPECT_EQ(end_text(link), "weft launch: CommError: dist.rendezvous: " + where +
                                ": nobody answers (Connection refused); did rank 0 start there?\n");
}

TEST(HostLink, TellsNoTimeOfALostStoreWhereSilenceHasNoLimit) {
  StoreEndpoint endpoint{"127.0.0.1", 0, kLinkKey, 1s};
  core::FileDescriptor socket = listen_on_loopback(endpoint.port);
  auto server = std::make_unique<StoreServer>(std::move(socket),
                                              StoreServerOptions{kLinkKey, "left", kNever});
  HostLink link(2, 1, "right", opener_of(endpoint), 10s, kNever);
  c10::make_intrusive<StoreClient>(endpoint, 10s)->wait({"weft/launch/beat/1"}, 10s);
  server.reset();
  EXPECT_EQ(end_text(link),
            "weft launch: CommError: host 0 and host 1 (right) have not heard from each other: one "
            "of them is cut off, stopped or has ended; the ranks were ended\n");
}

}  // namespace
}  // namespace weft::dist
