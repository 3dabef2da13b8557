#include "weft/dist/store/server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "weft/core/error.h"
#include "weft/core/sha256.h"
#include "weft/dist/store/sockets.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

constexpr auto kPollPeriod = 250ms;
// Accepted in one go, so that a flood of strangers does not hold up who has proven the key.
constexpr int kMostAtOnce = 64;

std::vector<std::string> read_keys(MessageReader& request) {
  std::vector<std::string> keys;
  while (!request.at_end()) keys.push_back(request.text());
  return keys;
}

int64_t number_in(const std::string& text) {
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10);
}

}  // namespace

StoreServer::StoreServer(core::FileDescriptor socket, StoreServerOptions options)
    : options_(std::move(options)),
      socket_(std::move(socket)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      board_(options_.host, options_.silence_limit),
      last_pass_(StoreClock::now()) {
  if (!wake_.is_open()) core::fail_errno("dist.store", "eventfd", errno);
  fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &former);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

StoreServer::~StoreServer() {
  stop_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

// A thread must not throw; without memory or the like there is no store any more, and the ranks see
// their connections end.
void StoreServer::run() {
  try {
    serve();
  } catch (const std::exception&) {
    connections_.clear();
    socket_.reset();
  }
}

void StoreServer::serve() {
  while (!stop_.load()) {
    poll_once();
    pass_time();
    answer_waits();
    for (Connection& connection : connections_) {
      if (connection.rank >= 0 && connection.told_version != board_.version()) {
        tell_health(connection, false);
      }
    }
    drop_broken();
  }
  for (Connection& connection : connections_) {
    if (connection.rank >= 0) tell_health(connection, true);
    write_to(connection);
  }
}

void StoreServer::poll_once() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
  for (const Connection& connection : connections_) {
    const short events = connection.out.empty() ? POLLIN : POLLIN | POLLOUT;
    polled.push_back({connection.socket.get(), events, 0});
  }
  if (::poll(polled.data(), polled.size(), static_cast<int>(kPollPeriod.count())) <= 0) return;
  size_t i = 2;
  for (Connection& connection : connections_) {
    const short events = polled[i++].revents;
    if ((events & POLLOUT) != 0) write_to(connection);
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(connection);
  }
  if (polled[1].revents != 0) accept_all();
}

void StoreServer::accept_all() {
  size_t strangers =
      static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                        [](const Connection& each) { return !each.proven; }));
  for (int i = 0; i < kMostAtOnce; ++i) {
    core::FileDescriptor socket(
        accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool is_out_of_descriptors = errno == EMFILE || errno == ENFILE;
    if (!socket.is_open() && !(is_out_of_descriptors && strangers > 0)) return;
    if (!socket.is_open() || strangers >= options_.max_strangers) {
      drop_oldest_stranger();
      --strangers;
    }
    if (!socket.is_open()) continue;
    accept_one(std::move(socket));
    ++strangers;
  }
}

// Whoever knows the key proves it in the time of one message there and back, and is gone from among
// the strangers by then. Connections are in the order in which they came.
void StoreServer::drop_oldest_stranger() {
  const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                   [](const Connection& each) { return !each.proven; });
  if (oldest != connections_.end()) connections_.erase(oldest);
}

void StoreServer::accept_one(core::FileDescriptor socket) {
  tune_connection(socket.get());
  give_up_after(socket.get(), options_.silence_limit);
  Connection& connection = connections_.emplace_back();
  connection.socket = std::move(socket);
  connection.prove_by = StoreClock::now() + kAnswerTime;
  connection.challenge = core::random_bytes(kChallengeBytes);
  connection.out = core::join(kStoreGreeting, connection.challenge);
  write_to(connection);
}

void StoreServer::write_to(Connection& connection) {
  while (!connection.out.empty() && !connection.broken) {
    const ssize_t sent = send(connection.socket.get(), connection.out.data(), connection.out.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      connection.out.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      connection.broken = true;
    }
  }
}

void StoreServer::read_from(Connection& connection) {
  std::array<char, 64 << 10> piece;
  const ssize_t got = recv(connection.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) {
    connection.broken = true;
    return;
  }
  connection.in.append(piece.data(), static_cast<size_t>(got));
  try {
    if (!connection.proven) take_proof(connection);
    if (connection.proven) take_requests(connection);
  } catch (const core::Error&) {
    connection.broken = true;
  }
}

void StoreServer::take_proof(Connection& connection) {
  if (connection.in.size() < kClientProofBytes) return;
  const std::string theirs = connection.in.substr(0, kChallengeBytes);
  const std::string proof = connection.in.substr(kChallengeBytes, core::kSha256Bytes);
  connection.in.erase(0, kClientProofBytes);
  const std::string expected = client_proof(options_.key, connection.challenge, theirs);
  connection.proven = core::equal_in_constant_time(proof, expected);
  connection.out +=
      connection.proven ? "y" + server_proof(options_.key, connection.challenge, theirs) : "n";
  write_to(connection);
  if (!connection.proven) connection.broken = true;
}

void StoreServer::take_requests(Connection& connection) {
  std::string message;
  while (!connection.broken && take_message(connection.in, message)) {
    answer(connection, MessageReader(std::move(message)));
  }
}

void StoreServer::answer(Connection& connection, MessageReader request) {
  const StoreOp op = request.op();
  if (op == StoreOp::kWait) return begin_wait(connection, request);
  if (op >= StoreOp::kBeat) return note_health(connection, op, request);
  const auto reply = answer_to(op, request);
  connection.broken = !reply.has_value();
  connection.out += reply.value_or("");
  write_to(connection);
}

// Nothing for a request that there is not.
std::optional<std::string> StoreServer::answer_to(StoreOp op, MessageReader& request) {
  MessageWriter reply;
  if (op == StoreOp::kCount) return reply.number(static_cast<int64_t>(values_.size())).framed();
  if (op == StoreOp::kCheck) return reply.number(has_all(read_keys(request)) ? 1 : 0).framed();
  const std::string key = request.text();
  const auto found = values_.find(key);
  const bool is_there = found != values_.end();
  switch (op) {
    case StoreOp::kSet:
      values_[key] = request.text();
      return reply.framed();
    case StoreOp::kGet:
      return reply.number(is_there ? 1 : 0).text(is_there ? found->second : "").framed();
    case StoreOp::kAdd: {
      const int64_t sum = (is_there ? number_in(found->second) : 0) + request.number();
      values_[key] = std::to_string(sum);
      return reply.number(sum).framed();
    }
    case StoreOp::kCompareSet: {
      const std::string expected = request.text();
      const std::string wanted = request.text();
      const bool matches = is_there ? found->second == expected : expected.empty();
      if (matches) values_[key] = wanted;
      return reply.text(matches ? wanted : (is_there ? found->second : expected)).framed();
    }
    case StoreOp::kDelete:
      return reply.number(static_cast<int64_t>(values_.erase(key))).framed();
    default:
      return std::nullopt;
  }
}

void StoreServer::begin_wait(Connection& connection, MessageReader& request) {
  const std::chrono::milliseconds time(request.number());
  connection.wait = Wait{read_keys(request), StoreClock::now() + time};
}

void StoreServer::answer_waits() {
  const auto now = StoreClock::now();
  for (Connection& connection : connections_) {
    if (!connection.wait) continue;
    const bool is_there = has_all(connection.wait->keys);
    if (!is_there && now < connection.wait->deadline) continue;
    connection.wait.reset();
    connection.out += MessageWriter().number(is_there ? 1 : 0).framed();
    write_to(connection);
  }
}

bool StoreServer::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return values_.contains(key); });
}

void StoreServer::note_health(Connection& connection, StoreOp op, MessageReader& request) {
  if (op == StoreOp::kPropose) return board_.propose(request.text());
  const auto rank = static_cast<int>(request.number());
  if (op == StoreOp::kLeave) return board_.leave(rank);
  core::check<core::CommError>(op == StoreOp::kBeat, "dist.store: expected a request of weft");
  HealthReport report;
  report.rank = rank;
  report.host = request.text();
  report.name = request.text();
  report.doing = request.text();
  board_.beat(report);
  connection.rank = rank;
  tell_health(connection, false);
}

// Verdict, this host, whether the store goes, and the ranks that have ended.
void StoreServer::tell_health(Connection& connection, bool closing) {
  MessageWriter state;
  state.text(board_.verdict()).text(options_.host).number(closing ? 1 : 0);
  for (const int rank : board_.ended()) state.number(rank);
  connection.told_version = board_.version();
  connection.out += state.framed();
  write_to(connection);
}

void StoreServer::pass_time() {
  const auto now = StoreClock::now();
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_pass_);
  if (passed < kPollPeriod / 2) return;
  last_pass_ = now;
  // Longer steps mean that this process was stopped itself.
  board_.pass(std::min<std::chrono::milliseconds>(passed, 2 * kPollPeriod));
  for (Connection& connection : connections_) {
    if (!connection.proven && now > connection.prove_by) connection.broken = true;
  }
}

void StoreServer::drop_broken() {
  for (const Connection& connection : connections_) {
    if (connection.broken && connection.rank >= 0) board_.lose(connection.rank);
  }
  std::erase_if(connections_, [](const Connection& each) { return each.broken; });
}

}  // namespace weft::dist
