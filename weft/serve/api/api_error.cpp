#include "weft/serve/api/api_error.h"

#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/json.h"

namespace weft::serve {

ApiError::ApiError(int status, std::string type, const std::string& message, std::string param,
                   std::string code, Numbers numbers)
    : std::runtime_error(message),
      status_(status),
      type_(std::move(type)),
      param_(std::move(param)),
      code_(std::move(code)),
      numbers_(std::move(numbers)) {}

ApiError ApiError::invalid(const std::string& param, const std::string& message) {
  return {400, error_type_of(400), param.empty() ? message : param + ": " + message, param};
}

ApiError ApiError::unexpected(const std::exception& error) {
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  if (!lacks_memory) return {500, error_type_of(500), error.what()};
  return {503, error_type_of(503), "no memory for this request; come back later"};
}

nlohmann::json ApiError::json() const {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  nlohmann::json error = {{"message", what()},
                          {"type", type_},
                          {"param", text_or_null(param_)},
                          {"code", text_or_null(code_)}};
  for (const auto& [name, number] : numbers_) error[name] = number;
  return {{"error", std::move(error)}};
}

HttpAnswer ApiError::answer() const {
  HttpAnswer answer;
  answer.status = status_;
  answer.body = core::dump_json(json());
  if (status_ == 429 || status_ == 503) answer.fields = {{"Retry-After", "1"}};
  if (status_ == 401) answer.fields = {{"WWW-Authenticate", "Bearer"}};
  return answer;
}

std::string error_type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "unavailable_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace weft::serve
