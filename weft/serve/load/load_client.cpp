#include "weft/serve/load/load_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/terminal/printable.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kWaits = asio::as_tuple(asio::use_awaitable);
constexpr auto kConnectTime = std::chrono::seconds(10);
// A server may have a queue.
constexpr auto kPieceTime = std::chrono::minutes(10);
constexpr size_t kMostRefusalBytes = size_t{16} << 10;

void check_step(const error_code& error, const char* what) {
  core::check<core::IoError>(!error, what, ": ", error.message());
}

http::request<http::string_body> message_of(const LoadUrl& url, LoadRequest request) {
  http::request<http::string_body> message(http::string_to_verb(request.method), request.path, 11);
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  message.set(http::field::host, (is_ipv6 ? "[" + url.host + "]" : url.host) + ":" + url.port);
  message.set(http::field::connection, "close");
  if (!request.api_key.empty()) {
    message.set(http::field::authorization, "Bearer " + request.api_key);
  }
  if (!request.body.empty()) message.set(http::field::content_type, "application/json");
  message.body() = std::move(request.body);
  message.prepare_payload();
  return message;
}

// The server's words for a refusal, if it has OpenAI's form.
std::string words_of(const std::string& body) {
  try {
    return core::parse_json(body, "answer").at("error").at("message").get<std::string>();
  } catch (const std::exception&) {
    return body.substr(0, 200);
  }
}

[[noreturn]] void refuse(unsigned status, const std::string& body) {
  const std::string message =
      core::join("answered with status ", status, ": ", core::printable(words_of(body)));
  if (status >= 400 && status < 500) throw core::ConfigError(message);
  throw core::IoError(message);
}

// One request and its answer on a stream that is connected.
template <class Stream>
asio::awaitable<void> converse(Stream& stream, const http::request<http::string_body>& message,
                               const LoadClient::Sink& sink) {
  beast::get_lowest_layer(stream).expires_after(kPieceTime);
  const auto [write_error, written] = co_await http::async_write(stream, message, kWaits);
  check_step(write_error, "the request was not taken");
  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  const auto [head_error, head] = co_await http::async_read_header(stream, buffer, parser, kWaits);
  check_step(head_error, "no answer");
  const unsigned status = parser.get().result_int();
  std::string refusal;
  std::array<char, 16384> piece = {};
  while (!parser.is_done()) {
    beast::get_lowest_layer(stream).expires_after(kPieceTime);
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    // Some bytes at a time: they are told when they come.
    const auto [error, size] = co_await http::async_read_some(stream, buffer, parser, kWaits);
    if (error != http::error::need_buffer) check_step(error, "the answer broke off");
    const std::string_view text(piece.data(), piece.size() - parser.get().body().size);
    if (status == 200) {
      sink(text);
    } else if (refusal.size() < kMostRefusalBytes) {
      refusal += text;
    }
  }
  if (status != 200) refuse(status, refusal);
}

}  // namespace

LoadUrl parse_load_url(const std::string& url) {
  LoadUrl parts;
  parts.is_https = url.starts_with("https://");
  core::check<core::ConfigError>(parts.is_https || url.starts_with("http://"), "load: URL ",
                                 core::quote(url), ", expected one like http://127.0.0.1:8080/v1");
  // They would end the request's first line, or split it.
  const bool is_plain = std::ranges::all_of(url, [](char c) { return c > ' ' && c < '\x7f'; });
  core::check<core::ConfigError>(is_plain, "load: URL ", core::quote(url),
                                 ", expected ASCII without spaces; write others as %20");
  const std::string rest = url.substr(url.find("//") + 2);
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string place = rest.substr(0, slash);
  parts.path = rest.substr(slash);
  while (parts.path.ends_with('/')) parts.path.pop_back();
  if (parts.path.empty()) parts.path = "/v1";
  const size_t bracket = place.find(']');
  const size_t colon = place.find(':', bracket == std::string::npos ? 0 : bracket);
  parts.host = place.substr(0, colon);
  parts.port = colon == std::string::npos ? "" : place.substr(colon + 1);
  if (bracket != std::string::npos && place.starts_with('[')) {
    parts.host = place.substr(1, bracket - 1);
  }
  if (colon == std::string::npos) parts.port = parts.is_https ? "443" : "80";
  const bool is_port = !parts.port.empty() && parts.port.size() <= 5 &&
                       parts.port.find_first_not_of("0123456789") == std::string::npos;
  core::check<core::ConfigError>(!parts.host.empty() && is_port, "load: URL ", core::quote(url),
                                 ", expected a host and a port like http://127.0.0.1:8080/v1");
  return parts;
}

LoadClient::LoadClient(LoadUrl url, const std::string& trusted_file)
    : url_(std::move(url)), tls_(asio::ssl::context::tls_client) {
  error_code error;
  tls_.set_verify_mode(asio::ssl::verify_peer);
  if (!url_.is_https) return;
  if (trusted_file.empty()) {
    tls_.set_default_verify_paths(error);
  } else {
    tls_.load_verify_file(trusted_file, error);
  }
  core::check<core::ConfigError>(!error, "load: ", trusted_file,
                                 ": expected a PEM file with certificates to trust, got ",
                                 error.message());
}

asio::awaitable<void> LoadClient::ask(LoadRequest request, Sink sink) {
  const auto message = message_of(url_, std::move(request));
  const auto executor = co_await asio::this_coro::executor;
  tcp::resolver resolver(executor);
  const auto [name_error, places] = co_await resolver.async_resolve(url_.host, url_.port, kWaits);
  check_step(name_error, "no such host");
  asio::ssl::stream<beast::tcp_stream> stream(executor, tls_);
  auto& plain = stream.next_layer();
  plain.expires_after(kConnectTime);
  const auto [connect_error, place] = co_await plain.async_connect(places, kWaits);
  check_step(connect_error, "cannot connect");
  if (!url_.is_https) {
    co_await converse(plain, message, sink);
    co_return;
  }
  SSL_set_tlsext_host_name(stream.native_handle(), url_.host.c_str());
  stream.set_verify_callback(asio::ssl::host_name_verification(url_.host));
  const auto [tls_error] = co_await stream.async_handshake(asio::ssl::stream_base::client, kWaits);
  check_step(tls_error, "no TLS session");
  co_await converse(stream, message, sink);
}

}  // namespace weft::serve
