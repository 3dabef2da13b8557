#pragma once

#include <optional>
#include <string>

#include "weft/cli/model/session.h"
#include "weft/cli/options.h"
#include "weft/cli/talk/talk_input.h"
#include "weft/generate/text_generator.h"

namespace weft::cli {

/// Behind each change of a setting that ranks are told.
inline constexpr char kEndOfChange = '\0';

/// A talk as rank 0 leads it: reads what is typed, obeys commands (/help), shows what became of an
/// answer. On a terminal Ctrl-C stops an answer, not the talk.
class Talk {
 public:
  /// All must outlive this. `answer` is what the commands set; `path` is the model's.
  Talk(generate::Chat& chat, generate::TextGenerator& generator, AnswerOptions& answer,
       std::string path);

  /// Reads until there is something to answer, which `chat` then knows. False: the talk ends.
  bool next();
  /// What /set has changed since it was called last: each a name, a space, its value, which may
  /// have several lines, and kEndOfChange.
  std::string take_changes();
  /// For the next answer: what the user has set, with a seed of its own.
  generate::TextOptions text_options();
  /// Writes an answer's text as it comes.
  generate::TextSink sink();
  /// Shows what the user should know of an answer that has ended.
  void finish(const generate::TextResult& result);
  bool is_terminal() const { return input_.is_terminal(); }

 private:
  /// What follows from a command.
  enum class Then { kReadOn, kAnswer, kEnd };
  struct Command;
  static const std::vector<Command>& commands();
  static std::vector<std::string> command_words();

  void greet() const;
  bool goes_on_after_interrupt(const ReadLine& line) const;
  Then obey(const std::string& line);
  bool ask(const std::string& question);
  bool has_asked(int64_t num_forgotten);

  Then help(const std::string& rest);
  Then reset(const std::string& rest);
  Then answer_again(const std::string& rest);
  Then undo(const std::string& rest);
  Then set_system(const std::string& rest);
  Then save(const std::string& rest);
  Then load(const std::string& rest);
  Then read_file(const std::string& rest);
  Then set(const std::string& rest);
  Then end(const std::string& rest);

  generate::Chat& chat_;
  generate::TextGenerator& generator_;
  AnswerOptions& answer_;
  std::string path_;
  TalkInput input_;
  /// Texts of files that stand before the next question.
  std::string read_text_;
  std::string changes_;
  uint64_t num_answers_ = 0;
  bool has_reader_ = true;
};

}  // namespace weft::cli
