#include "weft/serve/http/stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <span>

namespace weft::serve {
namespace {

namespace asio = boost::asio;

constexpr auto kWaits = asio::as_tuple(asio::use_awaitable);

Stream::Error error_of(const TlsStep& step) {
  if (step.state == TlsState::kDone) return {};
  if (step.state == TlsState::kEnded) return asio::error::eof;
  return asio::error::connection_reset;
}

}  // namespace

Stream::Stream(Socket socket, std::unique_ptr<TlsSession> session)
    : socket_(std::move(socket)), session_(std::move(session)) {
  Error ignored;
  if (session_) socket_.native_non_blocking(true, ignored);
}

// The session knows the socket by its descriptor, which another one may have after it was closed.
template <class Step>
Stream::Awaitable<TlsStep> Stream::finish(Step step) {
  while (socket_.is_open()) {
    const TlsStep made = step();
    if (made.state != TlsState::kWantsRead && made.state != TlsState::kWantsWrite) co_return made;
    const auto ready = made.state == TlsState::kWantsRead ? Socket::wait_read : Socket::wait_write;
    const auto [error] = co_await socket_.async_wait(ready, kWaits);
    if (error) break;
  }
  co_return TlsStep{TlsState::kFailed, 0};
}

Stream::Awaitable<std::pair<Stream::Error, bool>> Stream::begins_handshake() {
  // The type of a handshake's records.
  constexpr char kHandshake = 0x16;
  std::array<char, 1> first = {};
  const auto [error, size] =
      co_await socket_.async_receive(asio::buffer(first), Socket::message_peek, kWaits);
  co_return std::pair(error, first[0] == kHandshake);
}

Stream::Awaitable<bool> Stream::handshake() {
  const TlsStep step = co_await finish([this] { return session_->handshake(); });
  co_return step.state == TlsState::kDone;
}

Stream::Awaitable<Stream::Error> Stream::wait() {
  if (session_) {
    const TlsStep step = co_await finish([this] { return session_->peek(); });
    co_return error_of(step);
  }
  const auto [error] = co_await socket_.async_wait(Socket::wait_read, kWaits);
  co_return error;
}

Stream::Awaitable<std::pair<Stream::Error, size_t>> Stream::read_some(asio::mutable_buffer buffer) {
  if (session_) {
    const std::span<char> place(static_cast<char*>(buffer.data()), buffer.size());
    const TlsStep step = co_await finish([this, place] { return session_->read(place); });
    co_return std::pair(error_of(step), step.size);
  }
  const auto [error, size] = co_await socket_.async_read_some(buffer, kWaits);
  co_return std::pair(error, size);
}

Stream::Awaitable<Stream::Error> Stream::write(std::string_view text) {
  if (!session_) {
    const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(text), kWaits);
    co_return error;
  }
  while (!text.empty()) {
    const TlsStep step = co_await finish([this, text] { return session_->write(text); });
    if (step.state != TlsState::kDone) co_return error_of(step);
    text.remove_prefix(step.size);
  }
  co_return Error();
}

Stream::Awaitable<void> Stream::end_writing() {
  if (session_) co_await finish([this] { return session_->close_notify(); });
  Error ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

Stream::Next Stream::next() {
  Error error;
  if (!session_) return socket_.available(error) == 0 ? Next::kEnd : Next::kBytes;
  if (!socket_.is_open()) return Next::kEnd;
  switch (session_->peek().state) {
    case TlsState::kDone:
      return Next::kBytes;
    case TlsState::kWantsRead:
    case TlsState::kWantsWrite:
      return Next::kNothing;
    default:
      return Next::kEnd;
  }
}

}  // namespace weft::serve
