#include "weft/serve/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <new>
#include <random>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/serve/http/exchange.h"
#include "weft/serve/http/stream.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kWaits = asio::as_tuple(asio::use_awaitable);
// For what a refused client still sends.
constexpr std::chrono::milliseconds kLingering{2000};

// The client's own name for its request, or a new one: what stands in a log is no place for any
// bytes.
std::string request_id(std::string_view given) {
  constexpr size_t kMostBytes = 128;
  const auto is_fit = [](char c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || (c >= '0' && c <= '9') ||
           std::string_view(".-_:/+=@").find(c) != std::string_view::npos;
  };
  if (!given.empty() && given.size() <= kMostBytes && std::ranges::all_of(given, is_fit)) {
    return std::string(given);
  }
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return core::join("req-", std::hex, random());
}

// As far as a head has been read; one that was cut short lacks fields.
HttpRequest head_of(const http::request_header<>& head) {
  const auto field = [&](http::field name) { return std::string(head[name]); };
  const std::string target(head.target());
  HttpRequest request;
  request.method = std::string(head.method_string());
  request.path = target.substr(0, target.find('?'));
  request.authorization = field(http::field::authorization);
  request.host = field(http::field::host);
  request.origin = field(http::field::origin);
  request.id = request_id(head["X-Request-Id"]);
  return request;
}

HttpRequest request_of(http::request<http::string_body> message) {
  HttpRequest request = head_of(message);
  request.body = std::move(message.body());
  return request;
}

// One connection more while it lives.
class Counted {
 public:
  explicit Counted(HttpShared& shared) : shared_(shared) { ++shared_.num_connections; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --shared_.num_connections; }

 private:
  HttpShared& shared_;
};

// Ends an exchange however its connection ends.
class Finished {
 public:
  explicit Finished(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  Finished(const Finished&) = delete;
  Finished& operator=(const Finished&) = delete;
  ~Finished() { exchange_->finish(); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

// Closes a socket when a wait has taken too long.
class Watchdog {
 public:
  explicit Watchdog(tcp::socket& socket) : socket_(socket), timer_(socket.get_executor()) {}

  void allow(std::chrono::milliseconds most) {
    timer_.expires_after(most);
    timer_.async_wait([this, alive = std::weak_ptr(alive_)](error_code error) {
      if (error || alive.expired() || timer_.expiry() > asio::steady_timer::clock_type::now())
        return;
      error_code ignored;
      socket_.close(ignored);
    });
  }
  void allow_any() { timer_.expires_at(asio::steady_timer::time_point::max()); }

 private:
  tcp::socket& socket_;
  asio::steady_timer timer_;
  // The timer's last call may be on its way when this goes.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class Connection {
 public:
  Connection(tcp::socket socket, std::unique_ptr<TlsSession> session,
             std::shared_ptr<HttpShared> shared)
      : stream_(std::move(socket), std::move(session)),
        watchdog_(stream_.socket()),
        shared_(std::move(shared)) {}

  asio::awaitable<void> run() {
    bool goes_on = true;
    if (shared_->tls) goes_on = co_await begin_session();
    while (goes_on) goes_on = co_await serve_one();
    watchdog_.allow(kLingering);
    co_await stream_.end_writing();
    watchdog_.allow_any();
    error_code ignored;
    stream_.socket().close(ignored);
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  // False: the connection is over.
  asio::awaitable<bool> begin_session() {
    watchdog_.allow(shared_->options.handshake_timeout);
    const auto [error, is_handshake] = co_await stream_.begins_handshake();
    // Whoever only looks whether the port is open is no client.
    if (error == asio::error::eof) co_return false;
    if (!error && !is_handshake) {
      count_failed_handshake("the request is plain HTTP");
      stream_.drop_tls();
      co_await refuse({}, 400, "plain HTTP, expected HTTPS on this port; ask https://");
      co_return false;
    }
    bool is_done = false;
    if (!error) is_done = co_await stream_.handshake();
    if (!is_done) count_failed_handshake(reason_of_failure());
    co_return is_done;
  }

  std::string reason_of_failure() const {
    if (!stream_.socket().is_open()) return "it took too long";
    return stream_.failure().empty() ? "the client has gone" : std::string(stream_.failure());
  }

  void count_failed_handshake(const std::string& reason) {
    if (shared_->options.on_failed_handshake) shared_->options.on_failed_handshake(reason);
  }

  // False: the connection is over.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
    parser.body_limit(shared_->options.max_body_bytes);
    watchdog_.allow(shared_->options.idle_timeout);
    if (buffer_.size() == 0) {
      const error_code gone = co_await stream_.wait();
      if (gone) co_return false;
    }
    watchdog_.allow(shared_->options.request_timeout);
    error_code error;
    bool has_memory = true;
    try {
      error = co_await read(parser);
    } catch (const std::bad_alloc&) {
      has_memory = false;
    }
    if (!has_memory) {
      co_await refuse(parser.get(), 503, "no memory for this request; come back later");
      co_return false;
    }
    if (error == http::error::end_of_stream) co_return false;
    if (error) {
      const int status = status_of(error);
      co_await refuse(parser.get(), status, refusal_of(status, error));
      co_return false;
    }
    const std::string_view encoding = parser.get()[http::field::content_encoding];
    if (!encoding.empty() && encoding != "identity") {
      co_await refuse(parser.get(), 415,
                      core::join("Content-Encoding ", core::quote(encoding),
                                 ", expected none; send the body as it is"));
      co_return false;
    }
    co_return co_await answer(parser.release());
  }

  asio::awaitable<error_code> read(Parser& parser) {
    while (!parser.is_header_done()) {
      const error_code error = co_await read_some(parser);
      if (error) co_return error;
    }
    if (parser.get()[http::field::expect] == "100-continue" && !parser.is_done()) {
      const error_code error = co_await stream_.write("HTTP/1.1 100 Continue\r\n\r\n");
      if (error) co_return error;
    }
    parser.eager(true);
    while (!parser.is_done()) {
      const error_code error = co_await read_some(parser);
      if (error) co_return error;
    }
    co_return error_code();
  }

  // Gives the parser what is there, or else waits for more.
  asio::awaitable<error_code> read_some(Parser& parser) {
    constexpr size_t kMostAtOnce = size_t{64} << 10;
    error_code error = http::error::need_more;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
    if (error != http::error::need_more) co_return error;
    const size_t most = boost::beast::read_size(buffer_, kMostAtOnce);
    const auto [failed, size] = co_await stream_.read_some(buffer_.prepare(most));
    buffer_.commit(size);
    if (failed != asio::error::eof) co_return failed;
    if (!parser.got_some()) co_return http::error::end_of_stream;
    error = {};
    parser.put_eof(error);
    co_return error;
  }

  static int status_of(const error_code& error) {
    if (error == http::error::body_limit) return 413;
    if (error == http::error::header_limit) return 431;
    return 400;
  }

  std::string refusal_of(int status, const error_code& error) const {
    if (status == 413) {
      return core::join("a body of more than ", shared_->options.max_body_bytes,
                        " bytes; send a shorter one");
    }
    if (status == 431) {
      return core::join("a head of more than ", shared_->options.max_header_bytes,
                        " bytes; send shorter or fewer fields");
    }
    return core::join("no request of HTTP/1.1: ", error.message());
  }

  asio::awaitable<bool> answer(http::request<http::string_body> message) {
    const bool keeps_alive = message.keep_alive(), knows_chunks = message.version() >= 11;
    const auto exchange = begin(request_of(std::move(message)), keeps_alive, knows_chunks);
    const Finished finished(exchange);
    const bool is_complete = co_await write_out(*exchange);
    exchange->finish();
    error_code ignored;
    stream_.socket().cancel(ignored);
    co_return is_complete && exchange->keeps_alive();
  }

  // Hands the request on. Of its bytes nothing is left here, as an answer may take long.
  std::shared_ptr<Exchange> begin(const HttpRequest& request, bool keeps_alive, bool knows_chunks) {
    auto exchange = std::make_shared<Exchange>(stream_.socket().get_executor(), shared_, request,
                                               keeps_alive, knows_chunks);
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    watchdog_.allow_any();
    watch_for_end(exchange);
    shared_->handler(request, exchange);
    return exchange;
  }

  // A client that closes its side wants no answer; one that sends its next request early waits.
  void watch_for_end(const std::shared_ptr<Exchange>& exchange) {
    stream_.socket().async_wait(tcp::socket::wait_read, [this, exchange](error_code error) {
      if (error == asio::error::operation_aborted || exchange->is_over()) return;
      const Stream::Next next = error ? Stream::Next::kEnd : stream_.next();
      if (next == Stream::Next::kEnd) exchange->go();
      if (next == Stream::Next::kNothing) watch_for_end(exchange);
    });
  }

  // A client may take its time for a long text as long as it goes on reading. False if it has not.
  asio::awaitable<bool> write_in_slices(const std::string& text) {
    constexpr size_t kSlice = 64 << 10;
    for (size_t at = 0; at < text.size(); at += kSlice) {
      watchdog_.allow(shared_->options.write_timeout);
      const error_code error = co_await stream_.write(std::string_view(text).substr(at, kSlice));
      watchdog_.allow_any();
      if (error) co_return false;
    }
    co_return true;
  }

  // False if the client has gone.
  asio::awaitable<bool> write_out(Exchange& exchange) {
    while (!exchange.is_gone()) {
      if (exchange.has_unsent()) {
        const std::string text = exchange.take_unsent();
        if (!co_await write_in_slices(text)) co_return false;
      } else if (exchange.has_ended()) {
        co_return true;
      } else {
        exchange.changed().expires_after(shared_->options.ping_period);
        const auto [error] = co_await exchange.changed().async_wait(kWaits);
        const bool is_quiet = !error && exchange.is_stream() && !exchange.has_ended();
        if (is_quiet) exchange.add_piece(": ping\n\n");
      }
    }
    co_return false;
  }

  // Lets the client read the refusal before the connection goes, though it may still be sending.
  asio::awaitable<void> refuse(const http::request_header<>& head, int status,
                               const std::string& message) {
    HttpAnswer answer = shared_->options.refusal(status, message);
    if (shared_->options.fields) {
      for (auto& field : shared_->options.fields(head_of(head))) answer.fields.push_back(field);
    }
    const std::string text = whole_text(answer, false);
    watchdog_.allow(kLingering);
    const error_code error = co_await stream_.write(text);
    if (error) co_return;
    co_await stream_.end_writing();
    std::array<char, 4096> dropped;
    while (true) {
      const auto [ended, size] =
          co_await stream_.socket().async_read_some(asio::buffer(dropped), kWaits);
      if (ended) co_return;
    }
  }

  Stream stream_;
  boost::beast::flat_buffer buffer_;
  Watchdog watchdog_;
  std::shared_ptr<HttpShared> shared_;
};

}  // namespace

asio::awaitable<void> serve_connection(tcp::socket socket, std::shared_ptr<HttpShared> shared) {
  std::unique_ptr<TlsSession> session;
  if (shared->tls) {
    shared->tls->refresh();
    session = std::make_unique<TlsSession>(*shared->tls, socket.native_handle());
  }
  const Counted counted(*shared);
  try {
    Connection connection(std::move(socket), std::move(session), shared);
    co_await connection.run();
  } catch (const std::bad_alloc&) {
    // This client goes; what it asked for is ended with it.
  }
}

}  // namespace weft::serve
