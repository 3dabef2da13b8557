#include "weft/serve/http/exchange.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <new>
#include <string_view>

#include "weft/core/error.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

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

}  // namespace

std::string whole_text(const HttpAnswer& answer, bool keeps_alive) {
  const std::string length = core::join("Content-Length: ", answer.body.size(), "\r\n");
  return head_text(answer, length, keeps_alive) + answer.body;
}

Exchange::Exchange(const asio::any_io_executor& executor, std::shared_ptr<HttpShared> shared,
                   const HttpRequest& request, bool keeps_alive, bool is_chunked)
    : executor_(executor),
      changed_(executor),
      shared_(std::move(shared)),
      fields_(shared_->options.fields ? shared_->options.fields(request) : Fields()),
      keeps_alive_(keeps_alive && is_chunked),
      is_chunked_(is_chunked),
      has_body_(request.method != "HEAD") {
  ++shared_->num_exchanges;
}

void Exchange::send(HttpAnswer answer) {
  on_thread([answer = with_fields(std::move(answer))](Exchange& self) {
    std::string text = whole_text(answer, self.keeps_alive_);
    if (!self.has_body_) text.resize(text.size() - answer.body.size());
    self.add(text);
    self.has_ended_ = true;
  });
}

void Exchange::begin_stream(HttpAnswer answer) {
  on_thread([answer = with_fields(std::move(answer))](Exchange& self) {
    const char* const length = self.is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "";
    self.add(head_text(answer, length, self.keeps_alive_));
    self.is_stream_ = true;
  });
}

void Exchange::write(std::string piece) {
  on_thread([piece = std::move(piece)](Exchange& self) { self.add_piece(piece); });
}

void Exchange::end() {
  on_thread([](Exchange& self) {
    if (self.is_chunked_) self.add("0\r\n\r\n");
    self.has_ended_ = true;
  });
}

void Exchange::on_gone(std::function<void()> action) {
  asio::post(executor_, [self = shared_from_this(), action = std::move(action)] {
    if (self->is_gone_) return action();
    self->on_gone_ = action;
  });
}

void Exchange::add_piece(const std::string& piece) {
  if (piece.empty()) return;
  longest_ = std::max(longest_, piece.size());
  add(is_chunked_ ? core::join(std::hex, piece.size(), "\r\n", piece, "\r\n") : piece);
}

void Exchange::go() {
  if (is_gone_ || is_over_) return;
  is_gone_ = true;
  unsent_.clear();
  changed_.cancel();
  if (auto action = std::exchange(on_gone_, nullptr)) action();
}

void Exchange::finish() {
  if (is_over_) return;
  if (!has_ended_) go();
  is_over_ = true;
  on_gone_ = nullptr;
  --shared_->num_exchanges;
}

HttpAnswer Exchange::with_fields(HttpAnswer answer) const {
  answer.fields.insert(answer.fields.end(), fields_.begin(), fields_.end());
  return answer;
}

void Exchange::on_thread(std::function<void(Exchange&)> action) {
  {
    const std::lock_guard lock(mutex_);
    actions_.push_back(std::move(action));
  }
  asio::post(executor_, [self = shared_from_this()] { self->run_next(); });
}

void Exchange::run_next() {
  std::function<void(Exchange&)> action;
  {
    const std::lock_guard lock(mutex_);
    action = std::move(actions_.front());
    actions_.pop_front();
  }
  if (is_gone_ || is_over_ || has_ended_) return;
  try {
    action(*this);
  } catch (const std::bad_alloc&) {
    return go();
  }
  if (is_stream_ && unsent_.size() > shared_->options.max_unsent_bytes + longest_) return go();
  changed_.cancel();
}

}  // namespace weft::serve
