#pragma once

#include <cstddef>
#include <memory>

#include "weft/serve/http/server.h"
#include "weft/serve/http/tls.h"

namespace weft::serve {

/// What all connections of a server share; the server's thread alone touches it.
struct HttpShared {
  HttpOptions options;
  HttpHandler handler;
  /// Null: the server speaks plain HTTP.
  std::unique_ptr<TlsContext> tls;
  size_t num_connections = 0;
  /// Requests that are being answered.
  size_t num_exchanges = 0;
};

}  // namespace weft::serve
