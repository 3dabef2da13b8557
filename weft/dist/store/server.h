#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/dist/store/health_board.h"
#include "weft/dist/store/wire.h"

namespace weft::dist {

/// What a store is served with.
struct StoreServerOptions {
  /// The job's key; whoever connects must prove that it knows it.
  std::string key;
  /// This host, as messages name it.
  std::string host;
  /// After this time without a heartbeat a rank counts as stuck; max(): never.
  std::chrono::milliseconds silence_limit{5000};
  /// Connections that may be open without a proof of the key. Beyond these the oldest one goes, so
  /// that strangers who hold theirs cannot keep a rank out.
  size_t max_strangers = 128;
};

/// The key-value store at which the ranks of one job meet, and which passes on who of them lives.
/// A thread of its own serves it until this goes; those who listen are told first that it goes.
class StoreServer {
 public:
  /// `socket` listens already. No other thread may be about to fork.
  StoreServer(core::FileDescriptor socket, StoreServerOptions options);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();

 private:
  struct Wait {
    std::vector<std::string> keys;
    StoreClock::time_point deadline;
  };

  struct Connection {
    core::FileDescriptor socket;
    bool proven = false;
    bool broken = false;
    std::string challenge;
    StoreClock::time_point prove_by;
    std::string in;
    std::string out;
    std::optional<Wait> wait;
    /// Of a connection that brings heartbeats; -1: none.
    int rank = -1;
    int told_version = -1;
  };

  void run();
  void serve();
  void poll_once();
  void accept_all();
  void accept_one(core::FileDescriptor socket);
  void drop_oldest_stranger();
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void take_proof(Connection& connection);
  void take_requests(Connection& connection);
  void answer(Connection& connection, MessageReader request);
  std::optional<std::string> answer_to(StoreOp op, MessageReader& request);
  void note_health(Connection& connection, StoreOp op, MessageReader& request);
  void begin_wait(Connection& connection, MessageReader& request);
  void answer_waits();
  void tell_health(Connection& connection, bool closing);
  void pass_time();
  void drop_broken();
  bool has_all(const std::vector<std::string>& keys) const;

  StoreServerOptions options_;
  core::FileDescriptor socket_;
  core::FileDescriptor wake_;
  std::list<Connection> connections_;
  std::map<std::string, std::string> values_;
  HealthBoard board_;
  StoreClock::time_point last_pass_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace weft::dist
