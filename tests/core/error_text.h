#pragma once

#include <string>

#include "weft/core/error.h"

namespace weft::testing {

/// "FormatError: <message>" of the weft error that `action` throws, or "no error". Any other
/// exception passes through and fails the test.
template <class Action>
std::string error_text(Action&& action) {
  try {
    action();
  } catch (const core::Error& error) {
    return core::join(error.type(), ": ", error.what());
  }
  return "no error";
}

/// `text` with every `from` replaced by `to`, e.g. a temporary path by "FILE".
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace weft::testing
