#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/serve/http/server.h"

namespace weft::serve::test {

using namespace std::chrono_literals;

/// One client's socket.
class SocketClient {
 public:
  explicit SocketClient(const HttpServer& server, int receive_bytes = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) {
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    const timeval most{10, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server.port());
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::connect(socket_.get(), generic, sizeof address), 0);
  }
  virtual ~SocketClient() = default;

  virtual void send(const std::string& text) {
    ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Up to and with `end`; all there is if that doesn't come.
  std::string read_until(const std::string& end) {
    std::string text;
    char byte = 0;
    while (!text.ends_with(end) && read_byte(byte)) text += byte;
    return text;
  }
  std::string read_all() { return read_until("\xff"); }
  std::string ask(const std::string& text) {
    send(text);
    return read_all();
  }
  void close() { socket_.reset(); }

 protected:
  int socket() const { return socket_.get(); }
  virtual bool read_byte(char& byte) { return ::recv(socket_.get(), &byte, 1, 0) == 1; }

 private:
  core::FileDescriptor socket_;
};

inline std::string post(const std::string& body, const std::string& fields = "") {
  return core::join("POST /say?x=1 HTTP/1.1\r\nHost: a\r\n", fields,
                    "Content-Length: ", body.size(), "\r\n\r\n", body);
}

inline HttpOptions small_options() {
  HttpOptions options;
  options.max_header_bytes = 1000;
  options.max_body_bytes = 1000;
  options.request_timeout = 300ms;
  options.write_timeout = 300ms;
  options.ping_period = 50ms;
  options.refusal = [](int status, const std::string& message) {
    return HttpAnswer{status, "text/plain", message, {}};
  };
  return options;
}

inline void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  reply->send({200, "text/plain", request.method + " " + request.path + " " + request.body, {}});
}

inline std::string status_of(const std::string& answer) { return answer.substr(0, 12); }

/// Keeps replies and counts the clients that went.
struct Kept {
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpReply>> replies;
  std::atomic<int> num_gone = 0;

  HttpHandler handler() {
    return [this](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
      reply->on_gone([this] { ++num_gone; });
      const std::lock_guard lock(mutex);
      replies.push_back(reply);
    };
  }
  bool wait(size_t num_replies, int gone) {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (replies.size() == num_replies && num_gone == gone) return true;
      }
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  /// Streams to a client that reads nothing until the server takes it, too, for gone.
  void fill(size_t reply) {
    const int gone = num_gone;
    replies[reply]->begin_stream({});
    for (int i = 0; i < 200 && num_gone == gone; ++i) {
      replies[reply]->write(std::string(100'000, 'x'));
      std::this_thread::sleep_for(1ms);
    }
  }
};

}  // namespace weft::serve::test
