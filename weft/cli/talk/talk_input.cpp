#include "weft/cli/talk/talk_input.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "weft/cli/streams.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

constexpr char kBlock[] = "\"\"\"";
constexpr size_t kMostLineBytes = size_t{64} << 20;

// As the XDG base directory specification has it.
std::string history_path() {
  if (const char* const own = std::getenv("WEFT_CHAT_HISTORY")) return own;
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != 0) return std::string(state) + "/weft/chat_history";
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == 0) return "";
  return std::string(home) + "/.local/state/weft/chat_history";
}

// Whether more of the message follows a typed line; takes what says so out of it.
bool goes_on(std::string& message) {
  if (message.starts_with(kBlock)) {
    const std::string inside = message.substr(3);
    if (!inside.ends_with(kBlock)) return true;
    message = inside.substr(0, inside.size() - 3);
    if (message.starts_with('\n')) message.erase(0, 1);
    return false;
  }
  if (!message.ends_with('\\')) return false;
  message.pop_back();
  return true;
}

}  // namespace

TalkInput::TalkInput(std::vector<std::string> words)
    : is_terminal_(::isatty(STDIN_FILENO) != 0),
      editor_(LineEditor::open(history_path(), std::move(words))) {}

ReadLine TalkInput::read() {
  if (!is_terminal_) return read_plain_line();
  std::string message;
  for (bool is_first = true;; is_first = false) {
    ReadLine line = read_line(is_first ? "> " : ". ");
    message += line.text;
    const bool has_more =
        line.end == LineEnd::kPasted || (line.end == LineEnd::kTyped && goes_on(message));
    if (has_more) {
      message += '\n';
      continue;
    }
    message.erase(message.find_last_not_of('\n') + 1);
    if (line.end == LineEnd::kEnd && !message.empty()) line.end = LineEnd::kTyped;
    const bool is_worth_keeping = line.end == LineEnd::kTyped && !message.empty();
    if (is_worth_keeping && editor_ != nullptr) editor_->remember(message);
    return {line.end, message};
  }
}

ReadLine TalkInput::read_line(const std::string& prompt) {
  if (editor_ != nullptr) return editor_->read(prompt);
  std::fputs(prompt.c_str(), stderr);
  return read_plain_line();
}

ReadLine TalkInput::read_plain_line() {
  constexpr int kWaitMs = 200;
  std::array<char, 1 << 16> buffer;
  while (true) {
    if (const size_t end = bytes_.find('\n'); end != std::string::npos) {
      std::string text = bytes_.substr(0, end);
      bytes_.erase(0, end + 1);
      return {LineEnd::kTyped, text};
    }
    if (is_interrupted()) return {LineEnd::kInterrupted, std::exchange(bytes_, {})};
    pollfd polled = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&polled, 1, kWaitMs) <= 0) continue;
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) core::fail_errno("stdin", "cannot read", errno);
    if (got == 0) {
      const LineEnd end = bytes_.empty() ? LineEnd::kEnd : LineEnd::kTyped;
      return {end, std::exchange(bytes_, {})};
    }
    bytes_.append(buffer.data(), static_cast<size_t>(got));
    core::check<core::ConfigError>(bytes_.size() <= kMostLineBytes, "stdin: a line of more than ",
                                   kMostLineBytes, " bytes; break it");
  }
}

}  // namespace weft::cli
