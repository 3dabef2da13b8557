#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace weft::core {

/// Base of every error that weft throws on purpose. A message reads
/// "where: what, expected, got; what to do". The exit code is what the program ends with.
class Error : public std::runtime_error {
 public:
  Error(const char* type, int exit_code, const std::string& message)
      : std::runtime_error(message), type_(type), exit_code_(exit_code) {}

  /// Name of the error's type as the program prints it, e.g. "ConfigError".
  const char* type() const noexcept { return type_; }
  /// The program's exit code for this error, 1 to 5.
  int exit_code() const noexcept { return exit_code_; }

 private:
  const char* type_;
  int exit_code_;
};

/// A bug in weft itself.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error("InternalError", 1, message) {}
};

/// The request is impossible: flags, configuration, sizes.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error("ConfigError", 2, message) {}
};

/// Tensors disagree with each other or with what an operation needs.
class ShapeError : public Error {
 public:
  explicit ShapeError(const std::string& message) : Error("ShapeError", 2, message) {}
};

/// The bytes of a file are wrong. The message names the path, the tensor or key, and the offset.
class FormatError : public Error {
 public:
  explicit FormatError(const std::string& message) : Error("FormatError", 3, message) {}
};

/// A rank died, hung or disagrees. The message names the rank.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error("CommError", 4, message) {}
};

/// The operating system refused: no such file, permission, disk full.
class IoError : public Error {
 public:
  explicit IoError(const std::string& message) : Error("IoError", 5, message) {}
};

/// Joins `parts` with operator<< into one string.
template <class... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws `E` with the joined parts.
template <class E, class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw E(join(parts...));
}

/// Throws `E` with the joined parts unless `ok`. The text is built only on failure.
template <class E, class... Parts>
void check(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]] {
    fail<E>(parts...);
  }
}

/// "IoError: <path>: <what>: <strerror(error_number)>" in weft's form. Never returns.
[[noreturn]] void fail_errno(const std::string& where, const std::string& what, int error_number);

/// `text` in single quotes on one line: bytes that are not printable ASCII become `\xNN`, and
/// what goes past 96 bytes is cut. For names that come from files.
std::string quote(std::string_view text);

/// Writes "[2, 3]" for a shape or any list of numbers.
template <class List>
std::string list_text(const List& values) {
  std::ostringstream out;
  out << '[';
  const char* separator = "";
  for (const auto& value : values) {
    out << separator << value;
    separator = ", ";
  }
  out << ']';
  return out.str();
}

}  // namespace weft::core
