#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>

#include "weft/serve/http/server.h"

namespace weft::serve {

/// A request that gets an error for an answer, in OpenAI's form.
class ApiError : public std::runtime_error {
 public:
  /// Numbers that programs read, by their names.
  using Numbers = std::map<std::string, int64_t>;

  ApiError(int status, std::string type, const std::string& message, std::string param = "",
           std::string code = "", Numbers numbers = {});

  /// 400, invalid_request_error; `param` names the field.
  static ApiError invalid(const std::string& param, const std::string& message);

  /// 503 where there was no memory, else 500 with what `error` says.
  static ApiError unexpected(const std::exception& error);

  int status() const { return status_; }
  /// {"error": {"message", "type", "param", "code"}} and its numbers; empty texts are null.
  nlohmann::json json() const;
  /// The whole answer; busy servers say when to come back.
  HttpAnswer answer() const;

 private:
  int status_;
  std::string type_, param_, code_;
  Numbers numbers_;
};

/// The type that OpenAI's API gives errors of a status.
std::string error_type_of(int status);

}  // namespace weft::serve
