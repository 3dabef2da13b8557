#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "weft/serve/http/tls.h"

namespace weft::serve {

/// One client's bytes: those of its socket, or what TLS makes of them. Bytes beyond those that were
/// asked for stay in the socket, except for a TLS record that was begun. Nothing here has a limit
/// of time: closing the socket ends every wait with an error.
class Stream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;
  template <class Value>
  using Awaitable = boost::asio::awaitable<Value>;

  /// What the client has done since bytes were last read.
  enum class Next { kNothing, kBytes, kEnd };

  /// `session`: of this socket; null: plain bytes.
  Stream(Socket socket, std::unique_ptr<TlsSession> session);

  Socket& socket() { return socket_; }
  const Socket& socket() const { return socket_; }
  /// Whether the client's first byte, which stays, begins a TLS handshake; an error if it has gone.
  Awaitable<std::pair<Error, bool>> begins_handshake();
  /// Before all that follows, unless bytes are plain. False: there is no session.
  Awaitable<bool> handshake();
  /// Why there is none; empty where only the socket knows.
  std::string_view failure() const { return session_ ? session_->failure() : std::string_view(); }
  /// From now on bytes are plain.
  void drop_tls() { session_.reset(); }

  /// Waits until there are bytes to read; an error if none will come.
  Awaitable<Error> wait();
  /// At least one byte; asio::error::eof where the client has ended its side.
  Awaitable<std::pair<Error, size_t>> read_some(boost::asio::mutable_buffer buffer);
  /// All of `text`.
  Awaitable<Error> write(std::string_view text);
  /// Tells the client that no more comes.
  Awaitable<void> end_writing();
  /// Does not wait.
  Next next();

 private:
  /// Repeats `step`, which returns a TlsStep, whenever the socket is ready for it.
  template <class Step>
  Awaitable<TlsStep> finish(Step step);

  Socket socket_;
  std::unique_ptr<TlsSession> session_;
};

}  // namespace weft::serve
