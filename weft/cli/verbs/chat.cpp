#include <csignal>
#include <optional>
#include <sstream>

#include "weft/cli/answer.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/talk/channels.h"
#include "weft/cli/talk/notes.h"
#include "weft/cli/talk/settings.h"
#include "weft/cli/talk/talk.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/dist/launch/status_page.h"
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

int ask(generate::Chat& chat, const generate::TextGenerator& generator, Channels& channels,
        const Session& session, const ChatOptions& options) {
  const std::string question = given_text(session, options.prompt, options.prompt_file);
  auto answer = chat.reply(question, channels.with_marks(options.answer.text),
                           channels.begin(answer_sink(session, options.answer)));
  channels.finish(answer);
  const int status = finish_answer(answer, session, options.answer, generator.tokenizer());
  if (session.is_root() && !options.answer.is_json) {
    note_if_cut(answer.result, options.answer, generator.context(), "-n");
    note_speed(answer.result, generator.context());
  }
  return status;
}

// What rank 0 tells the others before each answer.
struct Turn {
  bool goes_on = false;
  /// As Talk::take_changes has them.
  std::string changes;
};

// Rank 0's, on all ranks. Collective.
Turn share_turn(const Session& session, const Turn& turn) {
  std::vector<int64_t> fields = {turn.goes_on ? 1 : 0};
  fields.insert(fields.end(), turn.changes.begin(), turn.changes.end());
  fields = generate::share_tokens(session.group(), fields);
  Turn shared{fields.front() == 1, {}};
  for (size_t i = 1; i < fields.size(); ++i) shared.changes += static_cast<char>(fields[i]);
  return shared;
}

void apply_changes(AnswerOptions& options, const std::string& changes) {
  std::istringstream lines(changes);
  for (std::string line; std::getline(lines, line, kEndOfChange);) {
    const size_t end = line.find(' ');
    apply_setting(options, line.substr(0, end), line.substr(end + 1));
  }
}

// On a terminal Ctrl-C is rank 0's: it stops an answer. What ends the program comes to all ranks.
void share_signals(const Session& session, const std::optional<Talk>& talk) {
  const int64_t is_terminal = talk && talk->is_terminal() ? 1 : 0;
  if (generate::share_tokens(session.group(), {is_terminal}).front() == 0) return;
  watch_termination();
  if (session.is_root()) dist::keep_on_after_interrupts();
  if (!session.is_root()) std::signal(SIGINT, SIG_IGN);
}

int talk(generate::Chat& chat, generate::TextGenerator& generator, Channels& channels,
         const Session& session, const ChatOptions& options) {
  AnswerOptions answer = options.answer;
  show_new_seed(session, answer);
  std::optional<Talk> led;
  if (session.is_root()) led.emplace(chat, generator, answer, session.path);
  share_signals(session, led);
  while (true) {
    Turn turn;
    if (led) turn.goes_on = led->next();
    if (led) turn.changes = led->take_changes();
    turn = share_turn(session, turn);
    if (!turn.goes_on) return is_interrupted() ? interrupted_status() : 0;
    if (!led) apply_changes(answer, turn.changes);
    auto result = chat.answer(channels.with_marks(led ? led->text_options() : answer.text),
                              channels.begin(led ? led->sink() : generate::TextSink()));
    chat.set_answer(channels.finish(result));
    if (led) led->finish(result);
  }
}

int chat_on_ranks(const ModelOptions& model, const dist::World& world, const ChatOptions& options) {
  watch_interrupt();
  const Session session = open_session(model, world);
  text::ChatTemplate chat_template = required_template(session);
  const std::string system =
      options.system_file.empty() ? options.system : given_text(session, "", options.system_file);
  generate::TextGenerator generator = make_generator(session, options.answer);
  Channels channels(chat_template, generator.tokenizer());
  generate::Chat chat(generator, std::move(chat_template), system);
  const bool talks = options.prompt.empty() && options.prompt_file.empty();
  return talks ? talk(chat, generator, channels, session, options)
               : ask(chat, generator, channels, session, options);
}

}  // namespace

int run_chat(const ChatOptions& options) {
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return chat_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
