#include "weft/cli/verbs/serve/key_file.h"

#include <cstdint>
#include <sstream>

#include "weft/core/error.h"
#include "weft/core/files/file.h"

namespace weft::cli {

std::vector<std::string> read_keys(const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  std::vector<std::string> keys;
  if (path.empty()) return keys;
  std::istringstream lines(core::read_text_file(path, kMaxBytes));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  core::check<core::FormatError>(!keys.empty(), path, ": no key, expected one in each line");
  return keys;
}

}  // namespace weft::cli
