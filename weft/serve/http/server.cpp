#include "weft/serve/http/server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <csignal>
#include <future>
#include <new>
#include <thread>
#include <utility>

#include "weft/core/error.h"
#include "weft/serve/http/connection.h"
#include "weft/serve/http/shared.h"
#include "weft/serve/http/tls.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr const char* kServe = "serve";

tcp::endpoint endpoint_of(const HttpOptions& options) {
  error_code error;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const auto address = asio::ip::make_address(host, error);
  core::check<core::ConfigError>(!error, kServe, ": host ", core::quote(options.host),
                                 ", expected an address of this machine like 127.0.0.1 or 0.0.0.0");
  return {address, options.port};
}

// As far as this process may ask for them.
void allow_descriptors(size_t num_connections) {
  constexpr size_t kForFiles = 256;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, num_connections + kForFiles);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpOptions options, HttpHandler handler) {
    shared->options = std::move(options);
    shared->handler = std::move(handler);
    if (!shared->options.tls.certificate.empty()) {
      shared->tls = std::make_unique<TlsContext>(shared->options.tls);
    }
    allow_descriptors(shared->options.max_connections);
    listen();
    asio::co_spawn(context, accept_all(), asio::detached);
    // Signals are for the thread that made the server. OpenSSL writes to sockets whose client has
    // gone, so SIGPIPE must not come here either.
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &former);
    thread = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }

  // What there is no memory for is dropped, and the rest goes on.
  void run() {
    while (true) {
      try {
        context.run();
        return;
      } catch (const std::bad_alloc&) {
        continue;
      }
    }
  }

  void listen() {
    const tcp::endpoint endpoint = endpoint_of(shared->options);
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (!error) return;
    core::check<core::ConfigError>(error.value() != EADDRNOTAVAIL, kServe, ": host ",
                                   shared->options.host, ", expected an address of this machine");
    core::fail<core::IoError>(kServe, ": ", shared->options.host, " port ", endpoint.port(),
                              ": cannot listen: ", error.message(), "; choose another port");
  }

  asio::awaitable<void> accept_all() {
    while (acceptor.is_open()) {
      if (shared->num_connections >= shared->options.max_connections) {
        co_await pause();
        continue;
      }
      auto [error, socket] = co_await acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
      if (error) {
        // No descriptor is left, or the client has gone again.
        co_await pause();
        continue;
      }
      if (!serve(std::move(socket))) co_await pause();
    }
  }

  // False where there is no memory for one client more.
  bool serve(tcp::socket socket) {
    try {
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      asio::co_spawn(context, serve_connection(std::move(socket), shared), asio::detached);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  asio::awaitable<void> pause() {
    asio::steady_timer timer(context, std::chrono::milliseconds(50));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }

  size_t count_exchanges() {
    std::promise<size_t> count;
    asio::post(context, [&] { count.set_value(shared->num_exchanges); });
    return count.get_future().get();
  }

  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  std::thread thread;
};

HttpServer::HttpServer(HttpOptions options, HttpHandler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {}

HttpServer::~HttpServer() {
  impl_->context.stop();
  impl_->thread.join();
}

uint16_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }

void HttpServer::finish(std::chrono::milliseconds most) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  asio::post(impl_->context, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
  });
  while (impl_->count_exchanges() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace weft::serve
