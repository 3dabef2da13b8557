#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "weft/serve/http/server.h"

namespace weft::serve {

/// Who may ask.
struct AccessOptions {
  /// Empty: everybody.
  std::vector<std::string> api_keys;
  /// The web pages, as browsers name them (https://example.org); "*": all.
  std::vector<std::string> cors_origins;
  /// Answer only requests to localhost or to an address: others come from a web page whose name was
  /// made to point here.
  bool is_local = true;
};

/// Throws ApiError: 403 for a web page or a host that may not ask, 401 for a request without a key
/// that needs one. Keys are compared in a time that says nothing of them.
void check_access(const HttpRequest& request, const AccessOptions& options, bool needs_key);

/// Which of the keys a request has, by its place; 0 for one without.
size_t client_of(const HttpRequest& request, const AccessOptions& options);

/// Header fields that let the request's web page read the answer; none for others.
std::vector<std::pair<std::string, std::string>> cors_fields(const HttpRequest& request,
                                                             const AccessOptions& options);

/// The header fields of every answer: the request's id, and cors_fields.
std::vector<std::pair<std::string, std::string>> answer_fields(const HttpRequest& request,
                                                               const AccessOptions& options);

/// The answer to a browser that asks whether its page may ask.
HttpAnswer preflight_answer();

}  // namespace weft::serve
