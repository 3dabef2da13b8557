#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <string>
#include <string_view>

namespace weft::serve {

/// The parts of a URL.
struct LoadUrl {
  bool is_https = false;
  std::string host, port;
  /// Without a slash at its end.
  std::string path;
};

/// Throws ConfigError for what is none of http or https.
LoadUrl parse_load_url(const std::string& url);

/// One request.
struct LoadRequest {
  std::string method, path, api_key, body;
};

/// Asks a server, each time over a connection of its own.
class LoadClient {
 public:
  /// Bytes of an answer's body as they come.
  using Sink = std::function<void(std::string_view)>;

  /// `trusted_file`: see LoadOptions. Throws ConfigError if it holds no certificate.
  LoadClient(LoadUrl url, const std::string& trusted_file);

  /// Returns once the answer is whole. Throws ConfigError for a status of 4xx, with the server's
  /// words, and IoError for others but 200, and where the connection can't be made or ends too
  /// early.
  boost::asio::awaitable<void> ask(LoadRequest request, Sink sink);

 private:
  LoadUrl url_;
  boost::asio::ssl::context tls_;
};

}  // namespace weft::serve
