#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace weft::serve {

/// Finds the data of server-sent events in bytes that come in any pieces.
class EventLines {
 public:
  /// Calls `take` with what stands behind "data:" in each line that is whole by now. Throws IoError
  /// for a line of more than 4 MiB.
  void add(std::string_view bytes, const std::function<void(std::string_view)>& take);

 private:
  std::string line_;
};

}  // namespace weft::serve
