#pragma once

#include <string>

namespace weft::test {

/// What the error says that `function` throws. Errors of another kind than `Error` pass through.
template <class Error, class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace weft::test
