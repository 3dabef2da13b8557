#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "weft/serve/http/server.h"
#include "weft/serve/http/shared.h"

namespace weft::serve {

/// The bytes of `answer`, head and body.
std::string whole_text(const HttpAnswer& answer, bool keeps_alive);

/// The answer to one request, as far as the client has not read it.
class Exchange : public HttpReply, public std::enable_shared_from_this<Exchange> {
 public:
  /// `is_chunked`: the client knows streams in chunks, as HTTP/1.1 has them.
  Exchange(const boost::asio::any_io_executor& executor, std::shared_ptr<HttpShared> shared,
           const HttpRequest& request, bool keeps_alive, bool is_chunked);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() override = default;

  void send(HttpAnswer answer) override;
  void begin_stream(HttpAnswer answer) override;
  void write(std::string piece) override;
  void end() override;
  void on_gone(std::function<void()> action) override;

  // The rest is for the server's thread.

  /// Adds to a stream what is written next.
  void add_piece(const std::string& piece);
  /// The client has gone, or reads too slowly.
  void go();
  /// No more of it is wanted.
  void finish();
  std::string take_unsent() { return std::exchange(unsent_, {}); }
  bool has_unsent() const { return !unsent_.empty(); }
  bool has_ended() const { return has_ended_; }
  bool is_gone() const { return is_gone_; }
  bool is_over() const { return is_over_; }
  bool is_stream() const { return is_stream_; }
  bool keeps_alive() const { return keeps_alive_; }
  /// Waits on it are cancelled whenever there may be something to send.
  boost::asio::steady_timer& changed() { return changed_; }

 private:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  HttpAnswer with_fields(HttpAnswer answer) const;
  /// Asio keeps no order between what its own thread posts and what others do, so actions wait in a
  /// queue of their own: a stream that the server's thread begins comes before another's pieces.
  void on_thread(std::function<void(Exchange&)> action);
  void run_next();
  void add(std::string text) { unsent_ = unsent_.empty() ? std::move(text) : unsent_ + text; }

  boost::asio::any_io_executor executor_;
  boost::asio::steady_timer changed_;
  std::shared_ptr<HttpShared> shared_;
  Fields fields_;
  bool keeps_alive_;
  bool is_chunked_;
  /// Of HEAD the answer's is not sent.
  bool has_body_;
  bool is_stream_ = false;
  bool has_ended_ = false;
  bool is_gone_ = false;
  bool is_over_ = false;
  std::string unsent_;
  /// Bytes of the longest piece, an echo of the prompt perhaps, which may wait beside others.
  size_t longest_ = 0;
  std::function<void()> on_gone_;

  std::mutex mutex_;
  std::deque<std::function<void(Exchange&)>> actions_;
};

}  // namespace weft::serve
