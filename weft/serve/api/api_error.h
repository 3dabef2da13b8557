#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

#include "weft/serve/http/server.h"

namespace weft::serve {

/// A request that gets an error for an answer, in OpenAI's form.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = "",
           std::string code = "");

  /// 400, invalid_request_error; `param` names the field.
  static ApiError invalid(const std::string& param, const std::string& message);

  int status() const { return status_; }
  /// {"error": {"message", "type", "param", "code"}}; empty texts are null.
  nlohmann::json json() const;
  /// The whole answer; busy servers say when to come back.
  HttpAnswer answer() const;

 private:
  int status_;
  std::string type_, param_, code_;
};

/// The type that OpenAI's API gives errors of a status.
std::string error_type_of(int status);

}  // namespace weft::serve
