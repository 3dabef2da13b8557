// What is typed with a slash before it.
#include <algorithm>
#include <cstdio>
#include <random>
#include <sstream>
#include <utility>

#include "weft/cli/talk/notes.h"
#include "weft/cli/talk/saved_talk.h"
#include "weft/cli/talk/settings.h"
#include "weft/cli/talk/talk.h"
#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/terminal/printable.h"

namespace weft::cli {
namespace {

constexpr char kForce[] = "--force ";
constexpr uint64_t kMostFileBytes = uint64_t{64} << 20;

// Without blanks around it.
std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::string required_path(const std::string& command, const std::string& path) {
  core::check<core::ConfigError>(!path.empty(), command, ": no file; name one");
  return path;
}

// Draws that begin with a setting are others each time, as those that begin with a flag are.
void choose_new_seed(const AnswerOptions& former, AnswerOptions& changed) {
  generate::SamplerOptions& sampler = changed.text.generate.sampler;
  const bool begins = former.text.generate.sampler.temperature == 0 && sampler.temperature > 0;
  if (!begins || changed.is_seed_given || changed.is_seed_new) return;
  sampler.seed = std::random_device()();
  changed.is_seed_new = true;
  note("seed ", sampler.seed);
}

}  // namespace

struct Talk::Command {
  std::string name, arguments, about;
  Then (Talk::*run)(const std::string& rest);
};

const std::vector<Talk::Command>& Talk::commands() {
  static const std::vector<Command> table = {
      {"/help", "", "this list", &Talk::help},
      {"/reset", "", "forget what was said, but for the system prompt", &Talk::reset},
      {"/regen", "", "answer the last question again", &Talk::answer_again},
      {"/undo", "", "forget the last question and its answer", &Talk::undo},
      {"/system", "[TEXT]", "show the system prompt or set it; - takes it away", &Talk::set_system},
      {"/read", "FILE", "put a file's text before the next question", &Talk::read_file},
      {"/save", "[--force] FILE", "write the talk as JSON", &Talk::save},
      {"/load", "FILE", "go on with a talk that was saved", &Talk::load},
      {"/set", "[NAME VALUE]", "show the settings of answers or change one: /set temp 0.7",
       &Talk::set},
      {"/quit", "", "end the talk (as Ctrl-D does)", &Talk::end},
  };
  return table;
}

std::vector<std::string> Talk::command_words() {
  std::vector<std::string> words;
  for (const Command& command : commands()) words.push_back(command.name);
  return words;
}

Talk::Then Talk::obey(const std::string& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string name = line.substr(0, end);
  try {
    for (const Command& command : commands()) {
      if (command.name == name) return (this->*command.run)(trimmed(line.substr(end)));
    }
    note("no command ", core::quote(name), core::did_you_mean(name, command_words()),
         "; /help lists them, and // begins a question with a slash");
  } catch (const core::Error& error) {
    note(error.what());
  }
  return Then::kReadOn;
}

Talk::Then Talk::help(const std::string& /*rest*/) {
  constexpr size_t kColumn = 24;
  std::string text;
  for (const Command& command : commands()) {
    std::string usage = command.name + " " + command.arguments;
    usage.resize(kColumn, ' ');
    text += "  " + usage + command.about + "\n";
  }
  text +=
      "Ctrl-C stops an answer. A message goes on behind a line that ends with \\, and from \"\"\" "
      "to "
      "\"\"\".\n";
  std::fputs(text.c_str(), stderr);
  return Then::kReadOn;
}

Talk::Then Talk::reset(const std::string& /*rest*/) {
  auto messages = chat_.messages();
  std::erase_if(messages, [](const text::Message& message) { return message.role != "system"; });
  chat_.set_messages(messages);
  read_text_.clear();
  note("what was said is forgotten");
  return Then::kReadOn;
}

Talk::Then Talk::answer_again(const std::string& /*rest*/) {
  const auto former = chat_.messages();
  if (has_asked(chat_.ask_again())) return Then::kAnswer;
  chat_.set_messages(former);
  return Then::kReadOn;
}

Talk::Then Talk::undo(const std::string& /*rest*/) {
  const auto question = chat_.undo();
  if (!question.has_value()) note("no question to forget");
  if (question.has_value()) note("forgotten: ", *question);
  return Then::kReadOn;
}

Talk::Then Talk::set_system(const std::string& rest) {
  auto messages = chat_.messages();
  const bool has_one = !messages.empty() && messages[0].role == "system";
  if (rest.empty()) {
    note(has_one ? "system prompt: " + messages[0].content : "no system prompt");
    return Then::kReadOn;
  }
  if (has_one) messages.erase(messages.begin());
  if (rest != "-") messages.insert(messages.begin(), {"system", rest});
  chat_.set_messages(messages);
  return Then::kReadOn;
}

Talk::Then Talk::save(const std::string& rest) {
  const bool force = rest.starts_with(kForce);
  const std::string path = required_path("/save", trimmed(force ? rest.substr(8) : rest));
  save_talk(path, chat_.messages(), force);
  note(count(static_cast<int64_t>(chat_.messages().size()), "message"), " in ", path);
  return Then::kReadOn;
}

Talk::Then Talk::load(const std::string& rest) {
  chat_.set_messages(load_talk(required_path("/load", rest)));
  note(count(static_cast<int64_t>(chat_.messages().size()), "message"), " from ", rest);
  return Then::kReadOn;
}

Talk::Then Talk::read_file(const std::string& rest) {
  const std::string text = core::read_text_file(required_path("/read", rest), kMostFileBytes);
  read_text_ += text + (text.ends_with('\n') ? "\n" : "\n\n");
  note(count(static_cast<int64_t>(text.size()), "byte"), " of ", rest,
       " stand before your next question");
  return Then::kReadOn;
}

Talk::Then Talk::set(const std::string& rest) {
  if (rest.empty()) {
    std::fputs(core::printable_lines(settings_text(answer_)).c_str(), stderr);
    return Then::kReadOn;
  }
  const size_t end = std::min(rest.find(' '), rest.size());
  const std::string name = rest.substr(0, end), value = trimmed(rest.substr(end));
  AnswerOptions changed = answer_;
  apply_setting(changed, name, value);
  generator_.check_options(changed.text);
  changed.is_seed_given |= name == "seed" || name == "s";
  choose_new_seed(answer_, changed);
  answer_ = std::move(changed);
  changes_ += name + " " + value + kEndOfChange;
  return Then::kReadOn;
}

Talk::Then Talk::end(const std::string& /*rest*/) { return Then::kEnd; }

}  // namespace weft::cli
