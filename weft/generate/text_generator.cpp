#include "weft/generate/text_generator.h"

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/generate/share_prompt.h"
#include "weft/generate/text_stream.h"

namespace weft::generate {
namespace {

int64_t context_or_default(int64_t asked, const models::CausalLM& model) {
  if (asked != 0) return asked;
  return std::min(TextGenerator::kDefaultContext, model.config().max_positions);
}

std::vector<int64_t> to_tokens(const std::vector<text::TokenId>& ids) {
  return {ids.begin(), ids.end()};
}

// What a question leaves for its answer at least, before older ones are forgotten.
constexpr int64_t kLeastAnswer = 256;

int64_t length_of(const std::vector<int64_t>& tokens) {
  return static_cast<int64_t>(tokens.size());
}

std::optional<size_t> last_question(const std::vector<text::Message>& messages) {
  for (size_t i = messages.size(); i > 0; --i) {
    if (messages[i - 1].role == "user") return i - 1;
  }
  return std::nullopt;
}

// The first question and what was said until the next one; false if there is no next one.
bool forget_oldest(std::vector<text::Message>& messages) {
  const auto asks = [](const text::Message& message) { return message.role == "user"; };
  const auto first = std::find_if(messages.begin(), messages.end(), asks);
  if (first == messages.end()) return false;
  const auto next = std::find_if(first + 1, messages.end(), asks);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

}  // namespace

TextGenerator::TextGenerator(std::shared_ptr<models::CausalLM> model, text::Tokenizer tokenizer,
                             int64_t context)
    : tokenizer_(std::move(tokenizer)),
      engine_(model, context_or_default(context, *model)),
      grammars_(tokenizer_, model->config().vocab_size) {}

// All ranks compile it, so that all refuse it alike.
GenerateOptions TextGenerator::with_grammar(const TextOptions& options) {
  GenerateOptions generate = options.generate;
  if (!options.grammar) return generate;
  core::check<core::ConfigError>(!options.ignores_end,
                                 "grammar: its texts end, expected not to continue past their end");
  generate.sampler.grammar = grammars_.compile(*options.grammar);
  return generate;
}

void TextGenerator::check_options(const TextOptions& options) {
  check_biases(options.generate.sampler, engine_.model().config().vocab_size);
  const TextStream stream(tokenizer_, options);
  with_grammar(options);
}

TextResult TextGenerator::complete(std::string_view prompt, const TextOptions& options,
                                   const TextSink& sink) {
  std::vector<int64_t> tokens;
  if (group().rank() == 0) tokens = to_tokens(tokenizer_.encode_prompt(prompt));
  return complete_tokens(tokens, options, sink);
}

TextResult TextGenerator::complete_tokens(const std::vector<int64_t>& prompt,
                                          const TextOptions& options, const TextSink& sink) {
  const std::vector<int64_t> shared = share_tokens(group(), prompt);
  TextStream stream(tokenizer_, options);
  TextResult answer;
  const auto show = [&](const std::string& text) {
    if (!sink(text)) return false;
    answer.text += text;
    return true;
  };
  answer.result = engine_.generate(shared, with_grammar(options), [&](int64_t token) {
    const TextStream::Step step = stream.push(token);
    return show(step.text) ? step.verdict : Verdict::kCancel;
  });
  if (group().rank() == 0) show(stream.finish());
  return answer;
}

Chat::Chat(TextGenerator& generator, text::ChatTemplate chat_template, const std::string& system)
    : generator_(generator), template_(std::move(chat_template)) {
  if (!system.empty()) messages_.push_back({"system", system});
}

int64_t Chat::ask(const std::string& question) {
  std::vector<text::Message> messages = messages_;
  messages.push_back({"user", question});
  return ask_all(std::move(messages));
}

int64_t Chat::ask_again() {
  const auto last = last_question(messages_);
  core::check<core::ConfigError>(last.has_value(), "chat: no question to answer again; ask one");
  return ask_all({messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(*last) + 1});
}

int64_t Chat::ask_all(std::vector<text::Message> messages) {
  const int64_t context = generator_.context();
  std::vector<int64_t> prompt = render(messages);
  int64_t num_forgotten = 0;
  if (length_of(prompt) + std::min(kLeastAnswer, context / 4) > context) {
    while (length_of(prompt) > context / 2 && forget_oldest(messages)) {
      ++num_forgotten;
      prompt = render(messages);
    }
  }
  messages_ = std::move(messages);
  prompt_ = std::move(prompt);
  return num_forgotten;
}

bool Chat::fits() const { return prompt_length() <= generator_.context(); }

TextResult Chat::answer(const TextOptions& options, const TextSink& sink) {
  TextResult answer = generator_.complete_tokens(prompt_, options, sink);
  messages_.push_back({"assistant", answer.text});
  return answer;
}

TextResult Chat::reply(const std::string& question, const TextOptions& options,
                       const TextSink& sink) {
  if (generator_.group().rank() == 0) ask(question);
  return answer(options, sink);
}

std::optional<std::string> Chat::undo() {
  const auto last = last_question(messages_);
  if (!last.has_value()) return std::nullopt;
  std::string question = messages_[*last].content;
  messages_.resize(*last);
  return question;
}

void Chat::set_messages(std::vector<text::Message> messages) { messages_ = std::move(messages); }

std::vector<int64_t> Chat::render(const std::vector<text::Message>& messages) const {
  const text::Tokenizer& tokenizer = generator_.tokenizer();
  const auto spelling = [&](text::TokenId id) {
    return id < 0 ? std::string() : std::string(tokenizer.bytes(id));
  };
  const text::Vocabulary& vocabulary = tokenizer.vocabulary();
  return to_tokens(tokenizer.encode_chat(
      template_.render({messages, spelling(vocabulary.bos), spelling(vocabulary.eos), true})));
}

}  // namespace weft::generate
