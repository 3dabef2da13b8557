#include "weft/serve/load/event_lines.h"

#include "weft/core/error.h"

namespace weft::serve {
namespace {

constexpr size_t kMostLineBytes = size_t{4} << 20;
constexpr std::string_view kData = "data:";

}  // namespace

void EventLines::add(std::string_view bytes, const std::function<void(std::string_view)>& take) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    core::check<core::IoError>(line_.size() <= kMostLineBytes, "an event of more than ",
                               kMostLineBytes, " bytes");
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with(kData)) {
      line.remove_prefix(kData.size());
      if (line.starts_with(' ')) line.remove_prefix(1);
      take(line);
    }
    line_.clear();
  }
}

}  // namespace weft::serve
