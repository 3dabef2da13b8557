#include "weft/serve/http/connection.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <mutex>
#include <utility>

#include "weft/core/error.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr auto kWaits = asio::as_tuple(asio::use_awaitable);
// For what a refused client still sends.
constexpr std::chrono::milliseconds kLingering{2000};

std::string head_text(const HttpAnswer& answer, const std::string& length, bool keeps_alive) {
  const auto status = static_cast<http::status>(answer.status);
  std::string text = core::join("HTTP/1.1 ", answer.status, " ",
                                std::string_view(http::obsolete_reason(status)), "\r\n");
  const auto add = [&](const std::string& name, const std::string& value) {
    text += name + ": " + value + "\r\n";
  };
  if (!answer.content_type.empty()) add("Content-Type", answer.content_type);
  for (const auto& [name, value] : answer.fields) add(name, value);
  text += length;
  add("Connection", keeps_alive ? "keep-alive" : "close");
  return text + "\r\n";
}

std::string whole_text(const HttpAnswer& answer, bool keeps_alive) {
  const std::string length = core::join("Content-Length: ", answer.body.size(), "\r\n");
  return head_text(answer, length, keeps_alive) + answer.body;
}

// The answer to one request, as far as the client has not read it.
class Exchange : public HttpReply, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(const asio::any_io_executor& executor, std::shared_ptr<HttpShared> shared,
           const HttpRequest& request, bool keeps_alive, bool is_chunked)
      : executor_(executor),
        changed_(executor),
        shared_(std::move(shared)),
        fields_(shared_->options.fields ? shared_->options.fields(request) : Fields()),
        keeps_alive_(keeps_alive && is_chunked),
        is_chunked_(is_chunked) {
    ++shared_->num_exchanges;
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() override = default;

  void send(HttpAnswer answer) override {
    on_thread([answer = with_fields(std::move(answer))](Exchange& self) {
      self.add(whole_text(answer, self.keeps_alive_));
      self.has_ended_ = true;
    });
  }
  void begin_stream(HttpAnswer answer) override {
    on_thread([answer = with_fields(std::move(answer))](Exchange& self) {
      const char* const length = self.is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "";
      self.add(head_text(answer, length, self.keeps_alive_));
      self.is_stream_ = true;
    });
  }
  void write(std::string piece) override {
    on_thread([piece = std::move(piece)](Exchange& self) { self.add_piece(piece); });
  }
  void end() override {
    on_thread([](Exchange& self) {
      if (self.is_chunked_) self.add("0\r\n\r\n");
      self.has_ended_ = true;
    });
  }
  void on_gone(std::function<void()> action) override {
    asio::post(executor_, [self = shared_from_this(), action = std::move(action)] {
      if (self->is_gone_) return action();
      self->on_gone_ = action;
    });
  }

  // The rest is for the server's thread.
  void add_piece(const std::string& piece) {
    if (piece.empty()) return;
    add(is_chunked_ ? core::join(std::hex, piece.size(), "\r\n", piece, "\r\n") : piece);
  }
  void go() {
    if (is_gone_ || is_over_) return;
    is_gone_ = true;
    unsent_.clear();
    changed_.cancel();
    if (auto action = std::exchange(on_gone_, nullptr)) action();
  }
  // No more of it is wanted.
  void finish() {
    if (is_over_) return;
    if (!has_ended_) go();
    is_over_ = true;
    on_gone_ = nullptr;
    --shared_->num_exchanges;
  }
  std::string take_unsent() { return std::exchange(unsent_, {}); }
  bool has_unsent() const { return !unsent_.empty(); }
  bool has_ended() const { return has_ended_; }
  bool is_gone() const { return is_gone_; }
  bool is_over() const { return is_over_; }
  bool is_stream() const { return is_stream_; }
  bool keeps_alive() const { return keeps_alive_; }
  asio::steady_timer& changed() { return changed_; }

 private:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  HttpAnswer with_fields(HttpAnswer answer) const {
    answer.fields.insert(answer.fields.end(), fields_.begin(), fields_.end());
    return answer;
  }
  // Asio keeps no order between what its own thread posts and what others do, so actions wait in a
  // queue of their own: a stream that the server's thread begins comes before another's pieces.
  void on_thread(std::function<void(Exchange&)> action) {
    {
      const std::lock_guard lock(mutex_);
      actions_.push_back(std::move(action));
    }
    asio::post(executor_, [self = shared_from_this()] { self->run_next(); });
  }
  void run_next() {
    std::function<void(Exchange&)> action;
    {
      const std::lock_guard lock(mutex_);
      action = std::move(actions_.front());
      actions_.pop_front();
    }
    if (is_gone_ || is_over_ || has_ended_) return;
    action(*this);
    if (unsent_.size() > shared_->options.max_unsent_bytes && is_stream_) return go();
    changed_.cancel();
  }
  void add(std::string text) { unsent_ = unsent_.empty() ? std::move(text) : unsent_ + text; }

  asio::any_io_executor executor_;
  asio::steady_timer changed_;
  std::shared_ptr<HttpShared> shared_;
  Fields fields_;
  bool keeps_alive_;
  bool is_chunked_;
  bool is_stream_ = false;
  bool has_ended_ = false;
  bool is_gone_ = false;
  bool is_over_ = false;
  std::string unsent_;
  std::function<void()> on_gone_;

  std::mutex mutex_;
  std::deque<std::function<void(Exchange&)>> actions_;
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
  Connection(tcp::socket socket, std::shared_ptr<HttpShared> shared)
      : socket_(std::move(socket)), watchdog_(socket_), shared_(std::move(shared)) {}

  asio::awaitable<void> run() {
    while (co_await serve_one()) {
    }
    watchdog_.allow_any();
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  // False: the connection is over.
  asio::awaitable<bool> serve_one() {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
    parser.body_limit(shared_->options.max_body_bytes);
    watchdog_.allow(shared_->options.idle_timeout);
    if (buffer_.size() == 0) {
      const auto [error] = co_await socket_.async_wait(tcp::socket::wait_read, kWaits);
      if (error) co_return false;
    }
    watchdog_.allow(shared_->options.request_timeout);
    const error_code error = co_await read(parser);
    if (error == http::error::end_of_stream) co_return false;
    if (error) {
      co_await refuse(status_of(error), error.message());
      co_return false;
    }
    const std::string_view encoding = parser.get()[http::field::content_encoding];
    if (!encoding.empty() && encoding != "identity") {
      co_await refuse(415, core::join("Content-Encoding ", core::quote(encoding),
                                      ", expected none; send the body as it is"));
      co_return false;
    }
    co_return co_await answer(parser.get());
  }

  asio::awaitable<error_code> read(Parser& parser) {
    const auto [error, size] = co_await http::async_read_header(socket_, buffer_, parser, kWaits);
    if (error) co_return error;
    if (parser.get()[http::field::expect] == "100-continue" && !parser.is_done()) {
      static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
      const auto [failed, sent] = co_await asio::async_write(socket_, asio::buffer(kGoOn), kWaits);
      if (failed) co_return failed;
    }
    const auto [rest, bytes] = co_await http::async_read(socket_, buffer_, parser, kWaits);
    co_return rest;
  }

  static int status_of(const error_code& error) {
    if (error == http::error::body_limit) return 413;
    if (error == http::error::header_limit) return 431;
    return 400;
  }

  asio::awaitable<bool> answer(const http::request<http::string_body>& message) {
    const auto field = [&](http::field name) { return std::string(message[name]); };
    const std::string target(message.target());
    HttpRequest request;
    request.method = std::string(message.method_string());
    request.path = target.substr(0, target.find('?'));
    request.body = message.body();
    request.authorization = field(http::field::authorization);
    request.host = field(http::field::host);
    request.origin = field(http::field::origin);
    const auto exchange = std::make_shared<Exchange>(socket_.get_executor(), shared_, request,
                                                     message.keep_alive(), message.version() >= 11);
    watchdog_.allow_any();
    watch_for_end(exchange);
    shared_->handler(request, exchange);
    const bool is_complete = co_await write_out(*exchange);
    exchange->finish();
    error_code ignored;
    socket_.cancel(ignored);
    co_return is_complete && exchange->keeps_alive();
  }

  // A client that closes its side wants no answer; one that sends its next request early waits.
  void watch_for_end(const std::shared_ptr<Exchange>& exchange) {
    socket_.async_wait(tcp::socket::wait_read, [this, exchange](error_code error) {
      if (error == asio::error::operation_aborted || exchange->is_over()) return;
      error_code failed;
      if (error || socket_.available(failed) == 0) exchange->go();
    });
  }

  // False if the client has gone.
  asio::awaitable<bool> write_out(Exchange& exchange) {
    while (!exchange.is_gone()) {
      if (exchange.has_unsent()) {
        const std::string text = exchange.take_unsent();
        watchdog_.allow(shared_->options.write_timeout);
        const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(text), kWaits);
        watchdog_.allow_any();
        if (error) co_return false;
      } else if (exchange.has_ended()) {
        co_return true;
      } else {
        exchange.changed().expires_after(shared_->options.ping_period);
        const auto [error] = co_await exchange.changed().async_wait(kWaits);
        if (!error && exchange.is_stream()) exchange.add_piece(": ping\n\n");
      }
    }
    co_return false;
  }

  // Lets the client read the refusal before the connection goes, though it may still be sending.
  asio::awaitable<void> refuse(int status, const std::string& message) {
    const std::string text = whole_text(shared_->options.refusal(status, message), false);
    watchdog_.allow(kLingering);
    const auto [error, sent] = co_await asio::async_write(socket_, asio::buffer(text), kWaits);
    if (error) co_return;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    std::array<char, 4096> dropped;
    while (true) {
      const auto [ended, size] = co_await socket_.async_read_some(asio::buffer(dropped), kWaits);
      if (ended) co_return;
    }
  }

  tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  Watchdog watchdog_;
  std::shared_ptr<HttpShared> shared_;
};

}  // namespace

asio::awaitable<void> serve_connection(tcp::socket socket, std::shared_ptr<HttpShared> shared) {
  ++shared->num_connections;
  Connection connection(std::move(socket), shared);
  co_await connection.run();
  --shared->num_connections;
}

}  // namespace weft::serve
