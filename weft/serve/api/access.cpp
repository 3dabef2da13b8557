#include "weft/serve/api/access.h"

#include <algorithm>
#include <string_view>

#include "weft/core/error.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

// Looks at every byte, whether the first ones differ or not.
bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned differences = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    differences |= static_cast<unsigned char>(given[i]) ^
                   static_cast<unsigned char>(key.empty() ? 0 : key[i % key.size()]);
  }
  return differences == 0;
}

// A page of this server may ask: browsers name it by the host that they ask.
bool is_own_page(const HttpRequest& request) {
  return !request.host.empty() && (request.origin == "http://" + request.host ||
                                   request.origin == "https://" + request.host);
}

bool is_allowed_origin(const std::string& origin, const AccessOptions& options) {
  return std::ranges::any_of(options.cors_origins, [&](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

// Without a port; the brackets of an IPv6 address stay.
std::string_view name_of(std::string_view host) {
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

bool is_own_name(std::string_view name) {
  const bool is_ipv4 =
      !name.empty() && name.find_first_not_of("0123456789.") == std::string_view::npos;
  return name.empty() || name == "localhost" || name.starts_with('[') || is_ipv4;
}

// The last of the keys that the request has, counted from 1; 0: none.
size_t find_key(const HttpRequest& request, const AccessOptions& options) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.authorization;
  if (!given.starts_with(kBearer)) return 0;
  size_t found = 0;
  for (size_t i = 0; i < options.api_keys.size(); ++i) {
    if (equal_in_constant_time(given.substr(kBearer.size()), options.api_keys[i])) found = i + 1;
  }
  return found;
}

void check_key(const HttpRequest& request, const AccessOptions& options) {
  if (options.api_keys.empty() || find_key(request, options) != 0) return;
  const std::string_view given = request.authorization;
  throw ApiError(
      401, error_type_of(401),
      given.empty() ? "no API key; send the header Authorization: Bearer KEY" : "wrong API key", "",
      "invalid_api_key");
}

}  // namespace

void check_access(const HttpRequest& request, const AccessOptions& options, bool needs_key) {
  if (options.is_local && !is_own_name(name_of(request.host))) {
    throw ApiError(403, error_type_of(403),
                   core::join("Host ", core::quote(request.host), ", expected localhost"));
  }
  const bool is_foreign = !request.origin.empty() && !is_own_page(request);
  if (is_foreign && !is_allowed_origin(request.origin, options)) {
    throw ApiError(403, error_type_of(403),
                   core::join("web pages of ", core::quote(request.origin), " may not ask"));
  }
  if (needs_key) check_key(request, options);
}

size_t client_of(const HttpRequest& request, const AccessOptions& options) {
  const size_t key = find_key(request, options);
  return key == 0 ? 0 : key - 1;
}

std::vector<std::pair<std::string, std::string>> cors_fields(const HttpRequest& request,
                                                             const AccessOptions& options) {
  if (request.origin.empty() || !is_allowed_origin(request.origin, options)) return {};
  return {{"Access-Control-Allow-Origin", request.origin},
          {"Access-Control-Expose-Headers", "Retry-After, X-Request-Id"},
          {"Vary", "Origin"}};
}

std::vector<std::pair<std::string, std::string>> answer_fields(const HttpRequest& request,
                                                               const AccessOptions& options) {
  auto fields = cors_fields(request, options);
  fields.emplace_back("X-Request-Id", request.id);
  return fields;
}

HttpAnswer preflight_answer() {
  HttpAnswer answer;
  answer.status = 204;
  answer.content_type.clear();
  answer.fields = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                   {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
                   {"Access-Control-Max-Age", "600"}};
  return answer;
}

}  // namespace weft::serve
