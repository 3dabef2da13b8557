// The store between real sockets on loopback.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/dist/message_of.h"
#include "weft/core/error.h"
#include "weft/core/sha256.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/store/client.h"
#include "weft/dist/store/job_key.h"
#include "weft/dist/store/remote_watch.h"
#include "weft/dist/store/server.h"
#include "weft/dist/store/sockets.h"

namespace weft::dist {
namespace {

using test::message_of;

using namespace std::chrono_literals;

constexpr const char* kKey = "a key that nobody can guess";

class StoreOnLoopback : public ::testing::Test {
 protected:
  void serve(std::chrono::milliseconds limit = 5s, const char* address = "127.0.0.1") {
    endpoint_.address = address;
    core::FileDescriptor socket = listen_on(address, endpoint_.port);
    server_ =
        std::make_unique<StoreServer>(std::move(socket), StoreServerOptions{kKey, "left", limit});
  }

  c10::intrusive_ptr<StoreClient> client() const {
    return c10::make_intrusive<StoreClient>(endpoint_, 2s);
  }

  std::unique_ptr<RemoteWatch> watch(int rank, const std::string& host,
                                     std::chrono::milliseconds limit = 5s) const {
    RemoteWatchOptions options;
    options.self = {rank, host, core::join("rank ", rank, " (host ", host, ")"), ""};
    options.doing = [] { return " during barrier #7"; };
    options.server = "the launcher on host left";
    options.silence_limit = limit;
    const auto deadline = StoreClock::now() + 5s;
    return std::make_unique<RemoteWatch>(
        connect_to_store(endpoint_.address, endpoint_.port, endpoint_.key, deadline), options);
  }

  StoreEndpoint endpoint_{"127.0.0.1", 0, kKey};
  std::unique_ptr<StoreServer> server_;
};

// The watch's verdict once there is one.
std::string verdict_of(const RemoteWatch& watch) {
  for (int i = 0; i < 200 && watch.verdict().empty(); ++i) std::this_thread::sleep_for(100ms);
  return watch.verdict();
}

// The next connection; the sockets of listen_on do not block.
core::FileDescriptor accept_from(const core::FileDescriptor& listening) {
  pollfd polled{listening.get(), POLLIN, 0};
  constexpr int kTimeMs = 5000;
  ::poll(&polled, 1, kTimeMs);
  return core::FileDescriptor(accept(listening.get(), nullptr, nullptr));
}

// Runs beside the test. What it throws comes out of get(), and fails the test instead of ending the
// program.
template <class Function>
std::future<void> beside(Function&& function) {
  return std::async(std::launch::async, std::forward<Function>(function));
}

TEST_F(StoreOnLoopback, KeepsAndCountsAsC10dsStoresDo) {
  serve();
  const auto a = client();
  const auto b = client();
  a->set("key", std::string("\0with any bytes\xff", 16));
  EXPECT_EQ(b->get_to_str("key"), std::string("\0with any bytes\xff", 16));
  EXPECT_EQ(a->add("sum", 40), 40);
  EXPECT_EQ(b->add("sum", 2), 42);
  EXPECT_EQ(a->get_to_str("sum"), "42");
  EXPECT_TRUE(a->check({"key", "sum"}));
  EXPECT_FALSE(a->check({"key", "none"}));
  EXPECT_EQ(a->compareSet("sum", std::string("41"), std::string("7")), "42");
  EXPECT_EQ(a->compareSet("sum", std::string("42"), std::string("7")), "7");
  EXPECT_EQ(a->compareSet("new", std::string(""), std::string("x")), "x");
  EXPECT_EQ(a->getNumKeys(), 3);
  EXPECT_TRUE(a->deleteKey("new"));
  EXPECT_FALSE(a->deleteKey("new"));
}

TEST_F(StoreOnLoopback, WaitsForAKeyAndNoLongerThanAsked) {
  serve();
  const auto a = client();
  auto other = beside([&] {
    std::this_thread::sleep_for(300ms);
    client()->set("late", std::string("here"));
  });
  EXPECT_EQ(a->get_to_str("late"), "here");
  other.get();
  EXPECT_THROW(a->wait({"late", "never"}, 200ms), StoreTimeout);
  EXPECT_EQ(a->get_to_str("late"), "here");
}

TEST_F(StoreOnLoopback, ServesIpv6) {
  if (std::string problem; addresses_of("::1", 0, problem).empty()) GTEST_SKIP() << problem;
  serve(5s, "::1");
  client()->set("key", std::string("value"));
  EXPECT_EQ(client()->get_to_str("key"), "value");
}

TEST_F(StoreOnLoopback, WhoDoesNotKnowTheKeyIsRefused) {
  serve();
  client()->set("key", std::string("ours"));
  StoreEndpoint wrong = endpoint_;
  for (const char* key : {"", "some other key of a job"}) {
    wrong.key = key;
    EXPECT_EQ(message_of<core::ConfigError>([&] { StoreClient(wrong, 2s); }),
              core::join("dist.store: 127.0.0.1:", endpoint_.port,
                         ": expected the key of this job, got another; give all hosts the same "
                         "WEFT_JOB_KEY or WEFT_JOB_KEY_FILE"));
  }
  // Nor does it listen to torch's own store protocol, or to requests without a proof.
  std::string problem;
  const auto address = addresses_of("127.0.0.1", endpoint_.port, problem).front();
  const auto stranger = connect_within(address, 1s, problem);
  const auto deadline = StoreClock::now() + 5s;
  receive_exactly(stranger.get(), kStoreGreeting.size() + kChallengeBytes, deadline);
  std::string request =
      MessageWriter().op(StoreOp::kSet).text("key").text("the stranger's").framed();
  request.resize(std::max<size_t>(request.size(), kClientProofBytes), 'x');
  send_all(stranger.get(), request, deadline);
  EXPECT_EQ(receive_exactly(stranger.get(), 1, deadline), "n");
  EXPECT_THROW(receive_exactly(stranger.get(), 1, deadline), core::CommError);
  EXPECT_EQ(client()->get_to_str("key"), "ours");
}

// A server that takes the store's port proves nothing to the clients.
TEST_F(StoreOnLoopback, AServerWithoutTheKeyIsNotBelieved) {
  int port = 0;
  const core::FileDescriptor listening = listen_on_loopback(port);
  auto impostor = beside([&] {
    const core::FileDescriptor socket = accept_from(listening);
    const auto deadline = StoreClock::now() + 5s;
    send_all(socket.get(), core::join(kStoreGreeting, std::string(kChallengeBytes, 'c')), deadline);
    receive_exactly(socket.get(), kClientProofBytes, deadline);
    send_all(socket.get(), "y" + std::string(kChallengeBytes, 'p'), deadline);
  });
  endpoint_.port = port;
  EXPECT_NE(message_of<core::ConfigError>([&] {
              client();
            }).find("the server there does not know the job's key"),
            std::string::npos);
  impostor.get();
}

// A stranger opens connections and says nothing, again and again.
TEST_F(StoreOnLoopback, StrangersThatHoldTheirConnectionsKeepNobodyOut) {
  serve();
  std::string problem;
  const auto address = addresses_of("127.0.0.1", endpoint_.port, problem).front();
  std::vector<core::FileDescriptor> held;
  constexpr int kMany = 300;
  for (int i = 0; i < kMany; ++i) held.push_back(connect_within(address, 1s, problem));
  const auto started = StoreClock::now();
  client()->set("key", std::string("ours"));
  EXPECT_EQ(client()->get_to_str("key"), "ours");
  // Far from the five seconds after which a stranger must go by himself.
  EXPECT_LT(StoreClock::now() - started, kAnswerTime - 1s);
}

// What is cut off, too long or comes one byte at a time, before and after the proof.
TEST_F(StoreOnLoopback, WrongLengthsEndTheirConnectionAlone) {
  serve();
  const auto ours = client();
  const auto deadline = StoreClock::now() + 20s;
  const auto ends = [&](const core::FileDescriptor& socket) {
    return message_of<core::CommError>([&] {
             while (true) receive_exactly(socket.get(), 1, deadline);
           }).find("has closed the connection") != std::string::npos;
  };
  const auto proven = [&] { return connect_to_store("127.0.0.1", endpoint_.port, kKey, deadline); };
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\x7f";
  const std::string wrong[] = {
      huge,
      MessageWriter().framed(),
      MessageWriter().number(99).framed(),
      MessageWriter().op(StoreOp::kSet).text("key").framed(),
      MessageWriter().op(StoreOp::kSet).number(1'000'000).framed(),
      MessageWriter().op(StoreOp::kBeat).number(1).framed(),
  };
  for (const std::string& bytes : wrong) {
    const auto socket = proven();
    send_all(socket.get(), bytes, deadline);
    EXPECT_TRUE(ends(socket)) << core::hex_text(bytes);
  }
  // Half a request, and then the end.
  send_all(proven().get(), MessageWriter().op(StoreOp::kSet).text("key").framed().substr(0, 11),
           deadline);
  ours->set("key", std::string("ours"));
  EXPECT_EQ(ours->get_to_str("key"), "ours");
}

// The answer to an earlier challenge is worth nothing.
TEST_F(StoreOnLoopback, AProofThatWasHeardOnceIsRefused) {
  serve();
  std::string problem;
  const auto address = addresses_of("127.0.0.1", endpoint_.port, problem).front();
  const auto deadline = StoreClock::now() + 5s;
  std::string proof;
  for (const char* answer : {"y", "n"}) {
    const auto socket = connect_within(address, 1s, problem);
    const std::string greeting =
        receive_exactly(socket.get(), kStoreGreeting.size() + kChallengeBytes, deadline);
    const std::string own(kChallengeBytes, 'c');
    if (proof.empty()) {
      proof = own + client_proof(kKey, greeting.substr(kStoreGreeting.size()), own);
    }
    send_all(socket.get(), proof, deadline);
    EXPECT_EQ(receive_exactly(socket.get(), 1, deadline), answer);
  }
}

TEST_F(StoreOnLoopback, ARequestThatIsNotAnsweredHasALimit) {
  serve();
  const auto a = client();
  server_.reset();
  EXPECT_THROW(a->set("key", std::string("x")), core::CommError);
  EXPECT_THROW(a->set("key", std::string("x")), core::CommError);
}

TEST_F(StoreOnLoopback, AllRanksHearOfARankThatIsGone) {
  serve();
  const auto left = watch(0, "left");
  auto right = watch(1, "right");
  {
    const auto stays =
        connect_to_store(endpoint_.address, endpoint_.port, kKey, StoreClock::now() + 5s);
    const HealthReport lost{2, "right", "rank 2 (host right)", ""};
    MessageWriter beat;
    beat.op(StoreOp::kBeat).number(2).text(lost.host).text(lost.name).text(" during barrier #7");
    send_all(stays.get(), beat.framed(), StoreClock::now() + 5s);
    receive_message(stays.get(), StoreClock::now() + 5s);
  }
  const std::string line = "rank 2 (host right) was killed or has ended during barrier #7";
  EXPECT_EQ(verdict_of(*left), line);
  EXPECT_EQ(verdict_of(*right), line);
  EXPECT_EQ(right->agree("rank 2 looks dead to me"), line);
  EXPECT_TRUE(left->has_ended(2));
  EXPECT_FALSE(left->has_ended(1));
}

TEST_F(StoreOnLoopback, ARankThatLeavesInOrderIsNoFault) {
  serve();
  const auto left = watch(0, "left");
  watch(1, "right").reset();
  for (int i = 0; i < 100 && !left->has_ended(1); ++i) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(left->has_ended(1));
  EXPECT_EQ(left->verdict(), "");
  EXPECT_EQ(left->agree("rank 1 hangs"), "rank 1 hangs");
  EXPECT_EQ(left->verdict(), "rank 1 hangs");
}

// A stopped process keeps its connections and says nothing, as a host behind a cut wire does.
TEST_F(StoreOnLoopback, BothSidesOfASilenceSayTheSame) {
  serve(1s);
  const auto left = watch(0, "left", 1s);
  const auto mute =
      connect_to_store(endpoint_.address, endpoint_.port, kKey, StoreClock::now() + 5s);
  MessageWriter beat;
  beat.op(StoreOp::kBeat).number(1).text("right").text("rank 1 (host right)").text("");
  send_all(mute.get(), beat.framed(), StoreClock::now() + 5s);
  EXPECT_EQ(verdict_of(*left), silence_between("left", "right", 1s));

  int port = 0;
  const core::FileDescriptor listening = listen_on_loopback(port);
  core::FileDescriptor kept;
  auto silent = beside([&] {
    kept = accept_from(listening);
    const auto deadline = StoreClock::now() + 5s;
    const std::string ours(kChallengeBytes, 'c');
    send_all(kept.get(), core::join(kStoreGreeting, ours), deadline);
    const std::string proof = receive_exactly(kept.get(), kClientProofBytes, deadline);
    send_all(kept.get(), "y" + server_proof(kKey, ours, proof.substr(0, kChallengeBytes)),
             deadline);
    receive_message(kept.get(), deadline);
    send_all(kept.get(), MessageWriter().text("").text("left").number(0).framed(), deadline);
  });
  endpoint_.port = port;
  const auto right = watch(1, "right", 1s);
  silent.get();
  EXPECT_EQ(verdict_of(*right), verdict_of(*left));
  // It may be that words come through in one direction alone.
  const auto deadline = StoreClock::now() + 5s;
  MessageReader word(receive_message(kept.get(), deadline));
  while (word.op() == StoreOp::kBeat) word = MessageReader(receive_message(kept.get(), deadline));
  EXPECT_EQ(word.text(), right->verdict());
}

}  // namespace
}  // namespace weft::dist
