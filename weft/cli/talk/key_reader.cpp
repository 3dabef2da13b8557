#include "weft/cli/talk/key_reader.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cwchar>

#include "weft/cli/streams.h"

namespace weft::cli {
namespace {

constexpr std::string_view kPasteBegin = "\033[200~";
constexpr std::string_view kPasteEnd = "\033[201~";
// What follows ESC of a key or a marker comes at once.
constexpr int kSequenceMs = 50;
constexpr int kWaitMs = 200;
constexpr wchar_t kQuoteKey = L'V' - L'@';  // Ctrl-V
constexpr wchar_t kUnknown = L'\uFFFD';

bool is_control(char byte) { return static_cast<unsigned char>(byte) < ' ' || byte == '\x7f'; }

}  // namespace

KeyReader::KeyReader(int descriptor, std::function<void()> on_wait)
    : descriptor_(descriptor), on_wait_(std::move(on_wait)) {}

// Waits for more bytes; false if none came in the time, after a signal and at the end.
bool KeyReader::fill(int most_ms) {
  pollfd polled = {descriptor_, POLLIN, 0};
  if (is_interrupted() || ::poll(&polled, 1, most_ms) <= 0) return false;
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(descriptor_, buffer.data(), buffer.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  has_ended_ = got <= 0;
  if (got > 0) bytes_.append(buffer.data(), static_cast<size_t>(got));
  return got > 0;
}

// Takes the marker if it comes next, and waits for the rest of it where it has begun.
bool KeyReader::take(std::string_view marker) {
  while (bytes_.size() < marker.size() && marker.starts_with(bytes_) && fill(kSequenceMs)) {
  }
  if (!bytes_.starts_with(marker)) return false;
  bytes_.erase(0, marker.size());
  return true;
}

int KeyReader::read(wchar_t& key) {
  while (true) {
    while (bytes_.empty() && !fill(kWaitMs)) {
      if (is_interrupted()) end_ = LineEnd::kInterrupted;
      if (is_interrupted()) return -1;
      if (has_ended_) end_ = LineEnd::kEnd;
      if (has_ended_) return 0;
      on_wait_();
    }
    if (take(is_pasting_ ? kPasteEnd : kPasteBegin)) {
      is_pasting_ = !is_pasting_;
      continue;
    }
    return is_pasting_ ? take_pasted(key) : take_character(key);
  }
}

int KeyReader::take_pasted(wchar_t& key) {
  const bool ends_line = bytes_[0] == '\r' || bytes_[0] == '\n';
  if (ends_line && !is_quoted_) {
    if (take("\r\n")) bytes_.insert(0, 1, '\n');
    bytes_.erase(0, 1);
    end_ = LineEnd::kPasted;
    key = L'\n';
    return 1;
  }
  if (is_control(bytes_[0]) && !is_quoted_) {
    is_quoted_ = true;
    key = kQuoteKey;
    return 1;
  }
  is_quoted_ = false;
  return take_character(key);
}

int KeyReader::take_character(wchar_t& key) {
  constexpr size_t kIncomplete = static_cast<size_t>(-2);
  while (true) {
    std::mbstate_t state = {};
    const size_t length = std::mbrtowc(&key, bytes_.data(), bytes_.size(), &state);
    if (length == kIncomplete && fill(kSequenceMs)) continue;
    const bool is_known = length <= bytes_.size();
    if (!is_known) key = kUnknown;
    bytes_.erase(0, is_known && length > 0 ? length : 1);
    return 1;
  }
}

}  // namespace weft::cli
