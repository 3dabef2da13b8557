#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "weft/serve/http/server.h"

namespace weft::serve {

/// What all connections of a server share; the server's thread alone touches it.
struct HttpShared {
  HttpOptions options;
  HttpHandler handler;
  size_t num_connections = 0;
  /// Requests that are being answered.
  size_t num_exchanges = 0;
};

/// Answers the requests of one client until it goes or `shared` says that its time is over.
boost::asio::awaitable<void> serve_connection(boost::asio::ip::tcp::socket socket,
                                              std::shared_ptr<HttpShared> shared);

}  // namespace weft::serve
