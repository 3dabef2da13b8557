#include "weft/generate/stop.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

// The end of a text that ends with one of `stops`: where that begins. Of several the longest.
size_t find_stop_at_end(std::string_view text, const std::vector<std::string>& stops) {
  size_t begin = std::string_view::npos;
  for (const std::string& stop : stops) {
    if (text.ends_with(stop)) begin = std::min(begin, text.size() - stop.size());
  }
  return begin;
}

}  // namespace

StopFinder::StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    core::check<core::ConfigError>(!stop.empty(),
                                   "generate: stop: expected a text, got an empty one");
  }
}

// The longest end of the text that a stop text begins with.
size_t StopFinder::held_length() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    const std::string_view text(pending_);
    for (size_t length = std::min(stop.size() - 1, text.size()); length > held; --length) {
      if (text.ends_with(std::string_view(stop).substr(0, length))) held = length;
    }
  }
  return held;
}

std::string StopFinder::push(std::string_view piece) {
  if (is_found_) return "";
  for (const char byte : piece) {
    pending_ += byte;
    const size_t begin = find_stop_at_end(pending_, stops_);
    if (begin == std::string_view::npos) continue;
    is_found_ = true;
    pending_.resize(begin);
    return std::exchange(pending_, {});
  }
  const size_t ready = pending_.size() - held_length();
  std::string text = pending_.substr(0, ready);
  pending_.erase(0, ready);
  return text;
}

std::string StopFinder::finish() { return std::exchange(pending_, {}); }

}  // namespace weft::generate
