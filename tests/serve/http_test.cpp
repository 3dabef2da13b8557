#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/error_text.h"
#include "weft/core/files/file.h"
#include "weft/serve/http/server.h"

namespace weft::serve {
namespace {

using namespace std::chrono_literals;
using testing::error_text;

// One client's socket.
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

  void send(const std::string& text) const {
    ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Up to and with `end`; all there is if that doesn't come.
  std::string read_until(const std::string& end) {
    std::string text;
    char byte = 0;
    while (!text.ends_with(end) && ::recv(socket_.get(), &byte, 1, 0) == 1) text += byte;
    return text;
  }
  std::string read_all() { return read_until("\xff"); }
  std::string ask(const std::string& text) {
    send(text);
    return read_all();
  }
  void close() { socket_.reset(); }

 private:
  core::FileDescriptor socket_;
};

std::string post(const std::string& body, const std::string& fields = "") {
  return core::join("POST /say?x=1 HTTP/1.1\r\nHost: a\r\n", fields,
                    "Content-Length: ", body.size(), "\r\n\r\n", body);
}

HttpOptions small_options() {
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

void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  reply->send({200, "text/plain", request.method + " " + request.path + " " + request.body, {}});
}

std::string status_of(const std::string& answer) { return answer.substr(0, 12); }

TEST(HttpServer, AnswersOneRequestAfterTheOtherOnOneConnection) {
  const HttpServer server(small_options(), echo);
  SocketClient client(server);
  const std::string whole =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n"
      "Connection: keep-alive\r\n\r\nPOST /say one!";
  client.send(post("one!"));
  EXPECT_EQ(client.read_until("one!"), whole);
  // Two at once.
  client.send(post("two.") + post("three", "Connection: close\r\n"));
  EXPECT_TRUE(client.read_until("two.").ends_with("POST /say two."));
  EXPECT_TRUE(client.read_all().ends_with("Connection: close\r\n\r\nPOST /say three"));
  SocketClient careful(server);
  careful.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(careful.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  careful.send("ok");
  EXPECT_TRUE(careful.read_until("ok").ends_with("POST / ok"));
}

TEST(HttpServer, RefusesWhatIsTooLongOrNoRequest) {
  const HttpServer server(small_options(), echo);
  const auto ask = [&](const std::string& text) {
    return status_of(SocketClient(server).ask(text));
  };
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(ask(post(std::string(1001, 'x'))), "HTTP/1.1 413");
  EXPECT_EQ(ask(head + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x') +
                "\r\n0\r\n\r\n"),
            "HTTP/1.1 413");
  EXPECT_EQ(ask(head + "X: " + std::string(2000, 'x') + "\r\n\r\n"), "HTTP/1.1 431");
  EXPECT_EQ(ask(post("zip", "Content-Encoding: gzip\r\n")), "HTTP/1.1 415");
  EXPECT_EQ(ask(head + "Content-Length: -1\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(ask(head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), "HTTP/1.1 400");
  EXPECT_EQ(ask(head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            "HTTP/1.1 400");
  EXPECT_EQ(ask(head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(ask("\x16\x03\x01 no http\r\n\r\n"), "HTTP/1.1 400");
  // A request that does not end: closed without an answer.
  EXPECT_EQ(ask(head), "");
}

TEST(HttpServer, StreamsInPiecesAndPingsWhileNothingComes) {
  std::vector<std::thread> threads;
  {
    const HttpServer server(small_options(),
                            [&](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
                              threads.emplace_back([reply] {
                                reply->begin_stream({200, "text/event-stream", "", {}});
                                reply->write("data: 1\n\n");
                                std::this_thread::sleep_for(80ms);
                                reply->write("data: 2\n\n");
                                reply->end();
                              });
                            });
    SocketClient client(server);
    client.send(post(""));
    const std::string all = client.read_until("0\r\n\r\n");
    EXPECT_NE(all.find("Transfer-Encoding: chunked\r\n"), std::string::npos) << all;
    const size_t ping = all.find("8\r\n: ping\n\n\r\n");
    EXPECT_LT(all.find("9\r\ndata: 1\n\n\r\n"), ping) << all;
    EXPECT_LT(ping, all.find("9\r\ndata: 2\n\n\r\n")) << all;
    // An old client knows no pieces.
    EXPECT_TRUE(SocketClient(server).ask("GET / HTTP/1.0\r\n\r\n").ends_with("data: 2\n\n"));
    for (std::thread& thread : threads) thread.join();
  }
}

// Keeps replies and counts the clients that went.
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
};

// What one thread hands to another, begun here and ended there, stays in order.
TEST(HttpServer, BeginsAStreamBeforeItsPiecesWhateverThreadWritesThem) {
  const HttpServer server(small_options(),
                          [](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
                            reply->begin_stream({200, "text/event-stream", "", {}});
                            std::thread([&] {
                              reply->write("one");
                              reply->end();
                            }).join();
                          });
  SocketClient client(server);
  client.send(post("", "Connection: close\r\n"));
  const std::string answer = client.read_all();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n3\r\none\r\n0\r\n\r\n")) << answer;
}

TEST(HttpServer, SaysWhenAClientGoesOrReadsNothing) {
  Kept kept;
  const HttpServer server(small_options(), kept.handler());
  SocketClient leaves(server), stays(server);
  leaves.send(post(""));
  ASSERT_TRUE(kept.wait(1, 0));
  stays.send(post(""));
  ASSERT_TRUE(kept.wait(2, 0));
  leaves.close();
  EXPECT_TRUE(kept.wait(2, 1));
  kept.replies[1]->send({200, "text/plain", "still here", {}});
  EXPECT_TRUE(stays.read_until("here").ends_with("still here"));

  SocketClient sleeps(server, 4096);
  sleeps.send(post(""));
  ASSERT_TRUE(kept.wait(3, 1));
  kept.replies[2]->begin_stream({});
  for (int i = 0; i < 200 && kept.num_gone == 1; ++i) {
    kept.replies[2]->write(std::string(100'000, 'x'));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(kept.wait(3, 2));
}

TEST(HttpServer, AnswersBesideHundredsOfIdleClients) {
  HttpServer server(small_options(), echo);
  std::vector<std::unique_ptr<SocketClient>> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(std::make_unique<SocketClient>(server));
  EXPECT_EQ(status_of(SocketClient(server).ask(post("", "Connection: close\r\n"))), "HTTP/1.1 200");
  server.finish(1s);
}

TEST(HttpServer, RefusesPlacesWhereItCannotListen) {
  HttpOptions options = small_options();
  const HttpServer server(options, echo);
  options.port = server.port();
  EXPECT_EQ(error_text([&] { const HttpServer second(options, echo); }),
            core::join("IoError: serve: 127.0.0.1 port ", options.port,
                       ": cannot listen: Address already in use; choose another port"));
  options.host = "nowhere";
  EXPECT_EQ(error_text([&] { const HttpServer second(options, echo); }),
            "ConfigError: serve: host 'nowhere', expected an address of this machine like "
            "127.0.0.1 or 0.0.0.0");
}

}  // namespace
}  // namespace weft::serve
