#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/generate/engine.h"
#include "weft/generate/options.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::generate {

/// Sees an answer's text as it comes, on rank 0 alone: after each token, with no text where none is
/// complete, and once at the end. False cancels the answer.
using TextSink = std::function<bool(const std::string& text)>;

/// An answer and its text.
struct TextResult {
  GenerateResult result;
  /// On rank 0; empty on the others.
  std::string text;
};

/// Texts to texts, by a model that is cut over ranks. Rank 0 reads prompts and writes answers; the
/// others get its tokens.
class TextGenerator {
 public:
  /// `context`: the most tokens kept, prompt and answer together; 0: as many as the model has, at
  /// most kDefaultContext. Collective. Throws ConfigError if it is out of range.
  TextGenerator(std::shared_ptr<models::CausalLM> model, text::Tokenizer tokenizer,
                int64_t context);

  static constexpr int64_t kDefaultContext = 4096;

  /// Continues a text, before which come the tokens that the tokenizer puts there, e.g. bos; no
  /// special token is parsed out of it. Collective: `prompt` and `sink` are rank 0's, the options
  /// are the same on all ranks. Throws ConfigError as Engine::generate and
  /// grammar::Compiler::compile, and for a stop text that is empty.
  TextResult complete(std::string_view prompt, const TextOptions& options, const TextSink& sink);

  /// The same for a prompt of tokens, which are rank 0's.
  TextResult complete_tokens(const std::vector<int64_t>& prompt, const TextOptions& options,
                             const TextSink& sink);

  /// Throws as `complete` would for these options, whatever the prompt.
  void check_options(const TextOptions& options);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  /// The most tokens kept.
  int64_t context() const { return engine_.context(); }
  const dist::Group& group() const { return engine_.model().group(); }

 private:
  GenerateOptions with_grammar(const TextOptions& options);

  text::Tokenizer tokenizer_;
  Engine engine_;
  grammar::Compiler grammars_;
};

/// A talk in a model's own chat format. What was said is rank 0's alone: only `answer` and `reply`
/// are collective, and what other ranks pass or get of messages means nothing.
class Chat {
 public:
  /// `generator` must outlive this. `system`: what the model is told first; empty: nothing.
  Chat(TextGenerator& generator, text::ChatTemplate chat_template, const std::string& system);

  /// Puts a question that `answer` then answers. Where it would leave no room for an answer, the
  /// oldest questions are forgotten with their answers until half of the context is free, or only
  /// this question is left; returns how many. Throws as ChatTemplate::render; nothing has changed
  /// then.
  int64_t ask(const std::string& question);
  /// The same for the last question, whose answer is forgotten. Throws ConfigError if there is
  /// none.
  int64_t ask_again();
  /// Whether what was asked fits into the context.
  bool fits() const;
  /// Answers what was asked and remembers that. Collective, as TextGenerator::complete.
  TextResult answer(const TextOptions& options, const TextSink& sink);
  /// What is remembered of the last answer in place of its text.
  void set_answer(text::Message answer) { messages_.back() = std::move(answer); }
  /// Both at once.
  TextResult reply(const std::string& question, const TextOptions& options, const TextSink& sink);

  /// Forgets the last question and what followed. Returns that question; none if there is none.
  std::optional<std::string> undo();
  /// What was said so far, the system's words first, if there are any.
  const std::vector<text::Message>& messages() const { return messages_; }
  /// Goes on from other messages.
  void set_messages(std::vector<text::Message> messages);
  /// Tokens of the last prompt.
  int64_t prompt_length() const { return static_cast<int64_t>(prompt_.size()); }

 private:
  std::vector<int64_t> render(const std::vector<text::Message>& messages) const;
  int64_t ask_all(std::vector<text::Message> messages);

  TextGenerator& generator_;
  text::ChatTemplate template_;
  std::vector<text::Message> messages_;
  std::vector<int64_t> prompt_;
};

}  // namespace weft::generate
