#include "weft/cli/talk/talk.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "weft/cli/answer.h"
#include "weft/cli/streams.h"
#include "weft/cli/talk/notes.h"
#include "weft/core/error.h"

namespace weft::cli {

Talk::Talk(generate::Chat& chat, generate::TextGenerator& generator, AnswerOptions& answer,
           std::string path)
    : chat_(chat),
      generator_(generator),
      answer_(answer),
      path_(std::move(path)),
      input_(command_words()) {
  if (is_terminal()) greet();
}

void Talk::greet() const { note(path_, "; /help lists commands, Ctrl-D ends the talk"); }

bool Talk::next() {
  while (has_reader_) {
    const ReadLine line = input_.read();
    if (line.end == LineEnd::kInterrupted) {
      if (!goes_on_after_interrupt(line)) return false;
      continue;
    }
    if (line.end == LineEnd::kEnd) {
      if (is_terminal()) std::fputs("\n", stderr);
      return false;
    }
    if (line.text.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (!line.text.starts_with('/') || line.text.starts_with("//")) {
      if (ask(line.text.substr(line.text.starts_with('/') ? 1 : 0))) return true;
      continue;
    }
    const Then then = obey(line.text);
    if (then != Then::kReadOn) return then == Then::kAnswer;
  }
  return false;
}

// Ctrl-C on a terminal takes back what was typed.
bool Talk::goes_on_after_interrupt(const ReadLine& line) const {
  if (!is_terminal() || caught_signal() != SIGINT) return false;
  forget_interrupt();
  std::fputs("\n", stderr);
  if (line.text.empty()) note("Ctrl-D or /quit ends the talk");
  return true;
}

bool Talk::ask(const std::string& question) {
  const auto former = chat_.messages();
  try {
    if (has_asked(chat_.ask(read_text_ + question))) {
      read_text_.clear();
      return true;
    }
  } catch (const core::Error& error) {
    note(error.what());
  }
  chat_.set_messages(former);
  return false;
}

// Says what became of a question; false if it can't be answered.
bool Talk::has_asked(int64_t num_forgotten) {
  if (!chat_.fits()) {
    note("the question has ", chat_.prompt_length(), " tokens, the context holds ",
         generator_.context(), "; ask a shorter one, or start with a larger --ctx-size");
    return false;
  }
  if (num_forgotten > 0) {
    note("the context is full: the ", count(num_forgotten, "oldest question"),
         " and what was answered are forgotten");
  }
  return true;
}

std::string Talk::take_changes() { return std::exchange(changes_, {}); }

generate::TextOptions Talk::text_options() {
  generate::TextOptions options = answer_.text;
  // A second answer to the same question is to be another one.
  options.generate.sampler.seed += num_answers_++;
  return options;
}

generate::TextSink Talk::sink() {
  return [this](const std::string& text) {
    has_reader_ = has_reader_ && TextOutput().write(text);
    return has_reader_ && !is_interrupted();
  };
}

void Talk::finish(const generate::TextResult& result) {
  has_reader_ = has_reader_ && TextOutput().write("\n");
  note_if_cut(result.result, answer_, generator_.context(), "/set max-tokens");
  note_speed(result.result, generator_.context());
  if (is_terminal() && caught_signal() == SIGINT) forget_interrupt();
}

}  // namespace weft::cli
