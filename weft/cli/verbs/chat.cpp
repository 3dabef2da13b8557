#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/cli/answer.h"
#include "weft/cli/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

// A talk: what was said, as rank 0 knows it, and the engine that all ranks run.
class Chat {
 public:
  Chat(const ChatOptions& options, const Session& session)
      : options_(options),
        session_(session),
        tokenizer_(models::load_tokenizer(*session.file)),
        template_(required_template(session)),
        engine_(session.loaded.model, context_size(options.answer.context, *session.loaded.model)) {
    if (!options.system.empty()) messages_.push_back({"system", options.system});
  }

  int run() { return options_.prompt.empty() ? talk() : ask(); }

 private:
  static text::ChatTemplate required_template(const Session& session) {
    auto found = models::load_chat_template(*session.file);
    core::check<core::ConfigError>(found.has_value(), session.path,
                                   ": no chat template; use `weft generate`");
    return *found;
  }

  int ask() {
    const bool is_root = session_.is_root();
    const Answer result = reply(is_root && options_.prompt == "-" ? read_stdin() : options_.prompt);
    if (is_root) {
      TextOutput().write(options_.answer.is_json ? core::dump_json(to_json(result, session_)) + "\n"
                                                 : "\n");
    }
    return exit_code(result);
  }

  int talk() {
    if (session_.is_root() && ::isatty(STDIN_FILENO)) {
      std::fprintf(stderr, "weft chat: %s; an empty line or Ctrl-D ends it\n",
                   session_.path.c_str());
    }
    while (true) {
      const std::string line = session_.is_root() ? read_line() : "";
      if (share_tokens(session_.group(), {line.empty() ? 0 : 1}) == std::vector<int64_t>{0}) {
        return is_interrupted() ? 130 : 0;
      }
      reply(line);
      if (session_.is_root() && !TextOutput().write("\n")) return 0;
    }
  }

  std::string read_line() const {
    if (::isatty(STDIN_FILENO)) std::fputs("> ", stderr);
    std::string line;
    std::getline(std::cin, line);
    return line;
  }

  Answer reply(const std::string& question) {
    std::vector<int64_t> prompt;
    if (session_.is_root()) {
      messages_.push_back({"user", question});
      prompt = to_tokens(tokenizer_.encode_chat(template_.render(inputs())));
    }
    prompt = share_tokens(session_.group(), prompt);
    Answer result = answer(engine_, tokenizer_, prompt, options_.answer);
    messages_.push_back({"assistant", result.text});
    return result;
  }

  text::ChatTemplate::Inputs inputs() const {
    const auto spelling = [&](text::TokenId id) {
      return id < 0 ? std::string() : std::string(tokenizer_.bytes(id));
    };
    const text::Vocabulary& vocabulary = tokenizer_.vocabulary();
    return {messages_, spelling(vocabulary.bos), spelling(vocabulary.eos), true};
  }

  ChatOptions options_;
  const Session& session_;
  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
  generate::Engine engine_;
  std::vector<text::Message> messages_;
};

}  // namespace

int run_chat(const ChatOptions& options) {
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    watch_interrupt();
    const Session session = open_session(model, world);
    return Chat(options, session).run();
  });
}

}  // namespace weft::cli
