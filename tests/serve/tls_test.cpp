// The server over TLS: what OpenSSL's client sees of it, and what goes wrong.
#include "weft/serve/http/tls.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/serve/certificates.h"
#include "tests/serve/http_clients.h"

namespace weft::serve {
namespace {

using test::Certificates;
using test::echo;
using test::Kept;
using test::post;
using test::small_options;
using test::SocketClient;
using test::status_of;
using testing::error_text;
using testing::replaced;
using namespace std::chrono_literals;

// What a client accepts.
struct ClientOptions {
  std::string trusted;
  int least_version = TLS1_2_VERSION;
  int most_version = TLS1_3_VERSION;
  int receive_bytes = 0;
};

class TlsClient : public SocketClient {
 public:
  TlsClient(const HttpServer& server, const ClientOptions& options)
      : SocketClient(server, options.receive_bytes),
        context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    // Version 1.1 needs what OpenSSL itself refuses otherwise.
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), options.least_version);
    SSL_CTX_set_max_proto_version(context_.get(), options.most_version);
    SSL_CTX_load_verify_file(context_.get(), options.trusted.c_str());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    session_.reset(SSL_new(context_.get()), SSL_free);
    SSL_set_fd(session_.get(), socket());
    SSL_set1_host(session_.get(), "localhost");
    ERR_clear_error();
    if (SSL_connect(session_.get()) == 1) return;
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    failure_ = reason == nullptr ? "closed" : reason;
  }

  // Empty: there is a session.
  const std::string& failure() const { return failure_; }
  std::string version() const { return SSL_get_version(session_.get()); }
  std::string serial_number() const {
    const std::shared_ptr<X509> shown(SSL_get1_peer_certificate(session_.get()), X509_free);
    const std::shared_ptr<BIGNUM> number(
        ASN1_INTEGER_to_BN(X509_get0_serialNumber(shown.get()), nullptr), BN_free);
    const std::shared_ptr<char> text(BN_bn2hex(number.get()),
                                     [](char* each) { OPENSSL_free(each); });
    return text.get();
  }
  void send(const std::string& text) override {
    SSL_write(session_.get(), text.data(), static_cast<int>(text.size()));
  }
  // Ends its own side of the session and leaves the socket open.
  void say_farewell() { SSL_shutdown(session_.get()); }
  void ask_for_new_keys() {
    SSL_key_update(session_.get(), SSL_KEY_UPDATE_REQUESTED);
    SSL_do_handshake(session_.get());
  }
  // Whether the server has said that no more comes.
  bool was_told_the_end() const {
    return (SSL_get_shutdown(session_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  }

 protected:
  bool read_byte(char& byte) override { return SSL_read(session_.get(), &byte, 1) == 1; }

 private:
  std::shared_ptr<SSL_CTX> context_;
  std::shared_ptr<SSL> session_;
  std::string failure_;
};

// What a server says of handshakes that failed.
struct Failures {
  std::mutex mutex;
  std::vector<std::string> reasons;

  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return reasons;
  }
  std::vector<std::string> wait_for(size_t count) {
    for (int i = 0; i < 1000 && all().size() < count; ++i) std::this_thread::sleep_for(5ms);
    return all();
  }
};

class Tls : public ::testing::Test {
 protected:
  HttpOptions options() {
    HttpOptions options = small_options();
    options.tls = {certificates_.chain(), certificates_.key()};
    options.handshake_timeout = 300ms;
    options.on_failed_handshake = [this](const std::string& reason) {
      const std::lock_guard lock(failures_.mutex);
      failures_.reasons.push_back(reason);
    };
    return options;
  }
  ClientOptions trusting() const { return {.trusted = certificates_.root()}; }

  Certificates certificates_;
  Failures failures_;
};

// A stream in pieces for `POST`, one answer that is larger than a record for others.
void answer_both_ways(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  if (request.method != "POST") {
    reply->send({200, "text/plain", std::string(60'000, 'x') + request.path, {}});
    return;
  }
  reply->begin_stream({200, "text/event-stream", "", {}});
  for (int i = 0; i < 50; ++i)
    reply->write(core::join("data: ", i, " of ", request.body.size(), "\n\n"));
  reply->end();
}

TEST_F(Tls, GivesTheBytesOfPlainHttp) {
  HttpOptions plain_options = small_options();
  plain_options.max_body_bytes = 1'000'000;
  HttpOptions tls_options = options();
  tls_options.max_body_bytes = 1'000'000;
  const HttpServer plain(plain_options, answer_both_ways), server(tls_options, answer_both_ways);
  const std::string closes = "Connection: close\r\n";
  const std::string requests[] = {
      post("a", closes),
      post(std::string(200'000, 'b'), closes),
      "GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
      "GET /old HTTP/1.0\r\n\r\n",
      "POST / HTTP/1.0\r\n\r\n",
      // Several on one connection, sent at once.
      post("a") + "GET /large HTTP/1.1\r\nHost: a\r\n\r\n" + post("b") + post("c", closes),
      post("c", "Expect: 100-continue\r\n" + closes),
      post("d", "Content-Encoding: gzip\r\n"),
      "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'x') + "\r\n\r\n",
      "no request\r\n\r\n",
  };
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    ClientOptions client_options = trusting();
    client_options.most_version = version;
    for (const std::string& request : requests) {
      SCOPED_TRACE(request.substr(0, 60));
      const std::string expected = SocketClient(plain).ask(request);
      TlsClient client(server, client_options);
      ASSERT_EQ(client.failure(), "");
      ASSERT_EQ(client.version(), version == TLS1_3_VERSION ? "TLSv1.3" : "TLSv1.2");
      EXPECT_FALSE(expected.empty());
      EXPECT_TRUE(client.ask(request) == expected);
      EXPECT_TRUE(client.was_told_the_end());
    }
  }
  EXPECT_TRUE(failures_.all().empty());
}

TEST_F(Tls, AnswersOneRequestAfterTheOtherOnOneConnection) {
  const HttpServer server(options(), echo);
  TlsClient client(server, trusting());
  for (const std::string& word : std::vector<std::string>{"one", "two", "three"}) {
    client.send(post(word));
    EXPECT_TRUE(client.read_until(word).ends_with("\r\n\r\nPOST /say " + word));
    client.ask_for_new_keys();
  }
  // In pieces.
  for (const char letter : post("four")) client.send(std::string(1, letter));
  EXPECT_TRUE(client.read_until("four").ends_with("POST /say four"));
}

TEST_F(Tls, RefusesVersionsBefore12) {
  const HttpServer server(options(), echo);
  ClientOptions old = trusting();
  old.least_version = TLS1_VERSION;
  old.most_version = TLS1_1_VERSION;
  EXPECT_EQ(TlsClient(server, old).failure(), "tlsv1 alert protocol version");
  EXPECT_EQ(failures_.wait_for(1), std::vector<std::string>{"unsupported protocol"});
}

TEST_F(Tls, TellsPlainRequestsToAskByHttps) {
  const HttpServer server(options(), echo);
  for (const char* request : {"GET / HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\n\r\n"}) {
    const std::string answer = SocketClient(server).ask(request);
    EXPECT_EQ(status_of(answer), "HTTP/1.1 400") << answer;
    EXPECT_TRUE(answer.ends_with("plain HTTP, expected HTTPS on this port; ask https://"));
  }
  EXPECT_EQ(failures_.wait_for(2), std::vector<std::string>(2, "the request is plain HTTP"));
  TlsClient client(server, trusting());
  EXPECT_EQ(status_of(client.ask(post("a", "Connection: close\r\n"))), "HTTP/1.1 200");
}

TEST_F(Tls, WaitsForHandshakesABoundedTime) {
  const HttpServer server(options(), echo);
  // Only looks whether somebody listens.
  SocketClient(server).close();
  SocketClient silent(server), slow(server), odd(server), gone(server);
  // The head of a record that is to follow.
  const std::string head("\x16\x03\x01\x02\x00\x01", 6);
  slow.send(head);
  odd.send(std::string("\x16\x03\x01\x00\x04xyz.", 9));
  gone.send(head);
  gone.close();
  EXPECT_EQ(failures_.wait_for(4).size(), 4U);
  auto reasons = failures_.all();
  std::sort(reasons.begin(), reasons.end());
  const std::vector<std::string> expected = {"it took too long", "it took too long",
                                             "the client has gone", "unexpected message"};
  EXPECT_EQ(reasons, expected);
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_EQ(slow.read_all(), "");
  TlsClient client(server, trusting());
  EXPECT_EQ(status_of(client.ask(post("a", "Connection: close\r\n"))), "HTTP/1.1 200");
}

TEST_F(Tls, SaysWhenAClientGoesOrReadsNothing) {
  Kept kept;
  const HttpServer server(options(), kept.handler());
  TlsClient breaks_off(server, trusting()), leaves(server, trusting()), stays(server, trusting());
  size_t num_replies = 0;
  for (TlsClient* client : {&breaks_off, &leaves, &stays}) {
    client->send(post(""));
    ASSERT_TRUE(kept.wait(++num_replies, 0));
  }
  // No bytes of an answer or of a request: the server goes on to wait.
  stays.ask_for_new_keys();
  breaks_off.close();
  EXPECT_TRUE(kept.wait(3, 1));
  leaves.say_farewell();
  EXPECT_TRUE(kept.wait(3, 2));
  kept.replies[2]->send({200, "text/plain", "still here", {}});
  EXPECT_TRUE(stays.read_until("here").ends_with("still here"));

  ClientOptions small = trusting();
  small.receive_bytes = 4096;
  TlsClient sleeps(server, small);
  sleeps.send(post(""));
  ASSERT_TRUE(kept.wait(4, 2));
  kept.fill(3);
  EXPECT_TRUE(kept.wait(4, 3));
}

TEST_F(Tls, AnswersBesideHundredsOfIdleClients) {
  HttpOptions patient = options();
  patient.handshake_timeout = 10s;
  HttpServer server(patient, echo);
  std::vector<std::unique_ptr<SocketClient>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<TlsClient>(server, trusting()));
    idle.push_back(std::make_unique<SocketClient>(server));
  }
  TlsClient client(server, trusting());
  EXPECT_EQ(status_of(client.ask(post("", "Connection: close\r\n"))), "HTTP/1.1 200");
  server.finish(1s);
}

TEST_F(Tls, ShowsTheChainThatLeadsToWhatClientsTrust) {
  HttpOptions leaf = options();
  leaf.tls.certificate = certificates_.server();
  const HttpServer whole(options(), echo), short_of_one(leaf, echo);
  EXPECT_EQ(TlsClient(whole, trusting()).failure(), "");
  EXPECT_EQ(TlsClient(short_of_one, trusting()).failure(), "certificate verify failed");
  EXPECT_EQ(failures_.wait_for(1), std::vector<std::string>{"tlsv1 alert unknown ca"});
}

TEST_F(Tls, ShowsARenewedCertificateToLaterClients) {
  const HttpServer server(options(), echo);
  TlsClient before(server, trusting());
  certificates_.renew();
  TlsClient after(server, trusting());
  EXPECT_EQ(after.failure(), "");
  EXPECT_NE(after.serial_number(), before.serial_number());
  before.send(post("a"));
  EXPECT_TRUE(before.read_until("say a").ends_with("POST /say a"));
  // A file that is no certificate changes nothing, and is told.
  certificates_.write("chain.pem", "none");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(TlsClient(server, trusting()).serial_number(), after.serial_number());
  EXPECT_EQ(TlsClient(server, trusting()).serial_number(), after.serial_number());
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("serve: the former certificate stays in use: " + certificates_.chain() +
                      ": no start line, expected a certificate in PEM form"),
            std::string::npos)
      << told;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
}

TEST_F(Tls, SaysWhatIsWrongWithItsFiles) {
  const auto text_of = [&](const std::string& certificate, const std::string& key) {
    const std::string text = error_text([&] { TlsContext context({certificate, key}); });
    return replaced(text, certificates_.at(""), "");
  };
  const std::string chain = certificates_.chain(), key = certificates_.key();
  EXPECT_EQ(text_of(chain, key), "no error");
  EXPECT_EQ(text_of(certificates_.at("none.pem"), key),
            "FormatError: none.pem: no such file; check the path");
  EXPECT_EQ(text_of(chain, certificates_.at("none.key")),
            "FormatError: none.key: no such file; check the path");
  EXPECT_EQ(text_of(key, key),
            "FormatError: server.key: no start line, expected a certificate in PEM form "
            "(-----BEGIN CERTIFICATE-----); `openssl x509` writes one");
  EXPECT_EQ(
      text_of(chain, chain),
      "FormatError: chain.pem: not a private key, expected one in PEM form (-----BEGIN PRIVATE "
      "KEY-----); `openssl pkey` writes one");
  EXPECT_EQ(text_of(chain, certificates_.at("root.key")),
            "ConfigError: root.key: not the key of the first certificate in chain.pem; give the "
            "two that belong together");
  std::string damaged = certificates_.read("chain.pem");
  damaged.resize(damaged.size() - 40);
  EXPECT_EQ(text_of(certificates_.write("cut.pem", damaged), key),
            "FormatError: cut.pem: bad end line, expected only certificates after the first; "
            "write the file again");
  Certificates::openssl({"pkey", "-in", key, "-aes128", "-passout", "pass:word", "-out",
                         certificates_.at("locked.key")});
  EXPECT_EQ(text_of(chain, certificates_.at("locked.key")),
            "FormatError: locked.key: encrypted, expected a key without a passphrase; `openssl "
            "pkey` writes one");
  Certificates::openssl({"req", "-x509", "-newkey", "rsa:1024", "-nodes", "-subj", "/CN=a",
                         "-keyout", certificates_.at("weak.key"), "-out",
                         certificates_.at("weak.pem")});
  EXPECT_EQ(text_of(certificates_.at("weak.pem"), certificates_.at("weak.key")),
            "ConfigError: weak.pem: OpenSSL refuses the certificate: ee key too small; make one "
            "with a longer key");
}

TEST_F(Tls, WarnsOfAKeyThatOthersCanRead) {
  const std::string key = certificates_.key();
  for (const mode_t mode : {0600, 0640, 0604}) {
    ::chmod(key.c_str(), mode);
    ::testing::internal::CaptureStderr();
    const TlsContext context({certificates_.chain(), key});
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(told.find(key + ": every user of this machine can read the key; chmod 600 it") !=
                  std::string::npos,
              mode == 0604)
        << told;
  }
}

}  // namespace
}  // namespace weft::serve
