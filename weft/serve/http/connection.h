#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "weft/serve/http/shared.h"

namespace weft::serve {

/// Answers the requests of one client until it goes or `shared` says that its time is over.
boost::asio::awaitable<void> serve_connection(boost::asio::ip::tcp::socket socket,
                                              std::shared_ptr<HttpShared> shared);

}  // namespace weft::serve
