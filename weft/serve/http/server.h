#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::serve {

/// What a client asks for, complete. Header fields that it did not send are empty.
struct HttpRequest {
  std::string method;
  /// Without what follows a question mark.
  std::string path;
  std::string body;
  std::string authorization;
  std::string host;
  std::string origin;
  /// X-Request-Id where it is fit for a log: 1 to 128 letters, digits and .-_:/+=@; else a new one.
  std::string id;
};

/// A whole answer.
struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  /// Further header fields.
  std::vector<std::pair<std::string, std::string>> fields = {};
};

/// Where one request is answered: by one send, or by begin_stream, writes and an end. Its methods
/// may be called on any thread and never wait; after the client has gone they do nothing.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpAnswer answer) = 0;
  /// Sends the head of `answer`, whose body is not used.
  virtual void begin_stream(HttpAnswer answer) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  /// `action` is called once, on the server's thread, if the client goes, or reads too slowly,
  /// before the answer has ended; at once if it has gone already.
  virtual void on_gone(std::function<void()> action) = 0;
};

/// Called on the server's one thread, so it must not wait.
using HttpHandler =
    std::function<void(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply)>;

/// What a server that speaks TLS shows to its clients; both files in PEM form.
struct TlsFiles {
  /// Its certificate, followed by those that lead to one which clients trust.
  std::string certificate;
  /// The private key of the first certificate, without a passphrase.
  std::string key;
};

/// Where a server listens and what it allows a client.
struct HttpOptions {
  std::string host = "127.0.0.1";
  /// 0: any free one.
  uint16_t port = 0;
  /// HTTPS alone; without a certificate HTTP alone. Files that change are read again.
  TlsFiles tls = {};
  size_t max_header_bytes = size_t{16} << 10;
  size_t max_body_bytes = size_t{8} << 20;
  /// What may wait to be read by a client beside one piece of a stream; more, and it counts as
  /// gone.
  size_t max_unsent_bytes = size_t{1} << 20;
  /// Further clients wait until one of these goes.
  size_t max_connections = 2000;
  /// From a client's coming to the end of its TLS handshake.
  std::chrono::milliseconds handshake_timeout{10'000};
  /// Between requests, for a whole request, and for a client that reads nothing.
  std::chrono::milliseconds idle_timeout{30'000};
  std::chrono::milliseconds request_timeout{10'000};
  std::chrono::milliseconds write_timeout{30'000};
  /// A stream without pieces gets a comment as often.
  std::chrono::milliseconds ping_period{15'000};
  /// Header fields that every answer to a request gets; null: none.
  std::function<std::vector<std::pair<std::string, std::string>>(const HttpRequest& request)>
      fields;
  /// The answer to a request that is refused before a handler sees it.
  std::function<HttpAnswer(int status, const std::string& message)> refusal;
  /// Told, on the server's thread, of a client with which there is no TLS session; null: nobody.
  std::function<void(const std::string& reason)> on_failed_handshake;
};

/// HTTP/1.1 on one thread of its own, whatever number of clients there is. Memory is bounded per
/// client by the options.
class HttpServer {
 public:
  /// Listens from now on. Throws ConfigError for a host that is no address of this machine, IoError
  /// where the port is taken; and as TlsContext.
  HttpServer(HttpOptions options, HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// Closes all connections.
  ~HttpServer();

  /// What it listens on.
  uint16_t port() const;
  /// Accepts no more clients and waits until every answer has been sent, at most for so long.
  void finish(std::chrono::milliseconds most);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve
