#include "weft/cli/streams.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/launch/status_page.h"

namespace weft::cli {
namespace {

constexpr size_t kMaxStdinBytes = size_t{64} << 20;

volatile std::sig_atomic_t interrupts = 0;

void on_interrupt(int number) {
  dist::note_asked_signal(number);
  interrupts = interrupts + 1;
}

void watch(int number) {
  // The handler may not be the first to ask for the page.
  static_cast<void>(dist::own_status());
  struct sigaction former = {};
  ::sigaction(number, nullptr, &former);
  // As nohup wants it, and shells for what they run in the background.
  if (former.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  // No SA_RESTART: a prompt that waits for input ends at once.
  ::sigaction(number, &action, nullptr);
}

}  // namespace

void watch_interrupt() { watch(SIGINT); }

bool is_interrupted() { return caught_signal() != 0; }
void watch_termination() {
  watch(SIGTERM);
  watch(SIGHUP);
}
int caught_signal() { return dist::asked_signal(); }
void forget_interrupt() { dist::forget_asked_signal(); }
int interrupted_status() { return 128 + caught_signal(); }
int num_signals() { return interrupts; }

bool TextOutput::write(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EPIPE) return false;
    if (wrote < 0) core::fail_errno("stdout", "cannot write", errno);
    done += static_cast<size_t>(wrote);
  }
  return true;
}

std::string without_last_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string read_stdin() {
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR && !is_interrupted()) continue;
    if (got < 0) core::fail_errno("stdin", "cannot read", errno);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
    core::check<core::ConfigError>(text.size() <= kMaxStdinBytes, "stdin: more than ",
                                   kMaxStdinBytes, " bytes; give a shorter prompt");
  }
}

}  // namespace weft::cli
