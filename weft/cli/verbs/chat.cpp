#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "weft/cli/answer.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/terminal/printable.h"
#include "weft/generate/share_prompt.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

text::ChatTemplate required_template(const Session& session) {
  auto found = models::load_chat_template(*session.file);
  core::check<core::ConfigError>(found.has_value(), session.path,
                                 ": no chat template; use `weft generate`");
  return *found;
}

int ask(generate::Chat& chat, const Session& session, const ChatOptions& options) {
  const bool reads_stdin = session.is_root() && options.prompt == "-";
  const std::string question = reads_stdin ? read_stdin() : options.prompt;
  const auto answer = chat.reply(question, options.answer.text, answer_sink(options.answer));
  return finish_answer(answer, session, options.answer);
}

// Empty at the end of the input, too.
std::string read_line() {
  if (::isatty(STDIN_FILENO)) std::fputs("> ", stderr);
  std::string line;
  std::getline(std::cin, line);
  return line;
}

// Whether rank 0 has another question. Collective.
bool share_goes_on(const Session& session, const std::string& line) {
  return generate::share_tokens(session.group(), {line.empty() ? 0 : 1}).front() == 1;
}

int talk(generate::Chat& chat, const Session& session, const ChatOptions& options) {
  if (session.is_root() && ::isatty(STDIN_FILENO)) {
    std::fprintf(stderr, "weft chat: %s; an empty line or Ctrl-D ends it\n",
                 core::printable(session.path).c_str());
  }
  while (true) {
    const std::string line = session.is_root() ? read_line() : "";
    if (!share_goes_on(session, line)) return is_interrupted() ? interrupted_status() : 0;
    chat.reply(line, options.answer.text, answer_sink(options.answer));
    if (session.is_root() && !TextOutput().write("\n")) return 0;
  }
}

int chat_on_ranks(const ModelOptions& model, const dist::World& world, const ChatOptions& options) {
  watch_interrupt();
  const Session session = open_session(model, world);
  text::ChatTemplate chat_template = required_template(session);
  generate::TextGenerator generator = make_generator(session, options.answer);
  generate::Chat chat(generator, std::move(chat_template), options.system);
  return options.prompt.empty() ? talk(chat, session, options) : ask(chat, session, options);
}

}  // namespace

int run_chat(const ChatOptions& options) {
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return chat_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
