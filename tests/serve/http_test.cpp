#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/serve/http_clients.h"
#include "weft/serve/http/server.h"

namespace weft::serve {
namespace {

using namespace std::chrono_literals;
using test::echo;
using test::Kept;
using test::post;
using test::small_options;
using test::SocketClient;
using test::status_of;
using testing::error_text;

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
  // HEAD gets no body, so that the next answer is read as what it is.
  SocketClient brief(server);
  brief.send("HEAD /say HTTP/1.1\r\nHost: a\r\n\r\n" + post("four", "Connection: close\r\n"));
  const std::string both = brief.read_all();
  EXPECT_NE(both.find("Content-Length: 10\r\nConnection: keep-alive\r\n\r\nHTTP/1.1 200 OK"),
            std::string::npos)
      << both;
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

TEST(HttpServer, RefusalsHaveTheFieldsOfEveryAnswer) {
  HttpOptions options = small_options();
  options.fields = [](const HttpRequest& request) {
    return std::vector<std::pair<std::string, std::string>>{
        {"Id", request.id}, {"From", request.method + request.path + request.origin}};
  };
  const HttpServer server(options, echo);
  const auto has = [&](const std::string& text, const std::string& fields) {
    return SocketClient(server).ask(text).find("\r\n" + fields + "\r\n") != std::string::npos;
  };
  const std::string named = "Origin: https://page\r\nX-Request-Id: mine\r\n";
  const std::string fields = "Id: mine\r\nFrom: POST/sayhttps://page";
  EXPECT_TRUE(has(post(std::string(1001, 'x'), named), fields));
  EXPECT_TRUE(has(post("zip", named + "Content-Encoding: gzip\r\n"), fields));
  EXPECT_TRUE(
      has("POST /say HTTP/1.1\r\n" + named + "X: " + std::string(2000, 'x') + "\r\n\r\n", fields));
  EXPECT_TRUE(has("GET /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "From: GET/a"));
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

// One piece, an echo of the prompt, may be longer than what may wait.
TEST(HttpServer, StreamsAPieceOfAnyLengthToAClientThatReads) {
  HttpOptions options = small_options();
  options.max_unsent_bytes = 1000;
  const HttpServer server(options, [](const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
    reply->begin_stream({200, "text/event-stream", "", {}});
    reply->write(std::string(3'000'000, 'x'));
    reply->end();
  });
  SocketClient client(server);
  client.send(post("", "Connection: close\r\n"));
  EXPECT_TRUE(client.read_all().ends_with("xxx\r\n0\r\n\r\n"));
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
  kept.fill(2);
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
