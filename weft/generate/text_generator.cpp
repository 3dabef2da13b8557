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

TextResult TextGenerator::complete(std::string_view prompt, const TextOptions& options,
                                   const TextSink& sink) {
  std::vector<int64_t> tokens;
  if (group().rank() == 0) tokens = to_tokens(tokenizer_.encode(prompt));
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

TextResult Chat::reply(const std::string& question, const TextOptions& options,
                       const TextSink& sink) {
  std::vector<int64_t> tokens;
  if (generator_.group().rank() == 0) {
    messages_.push_back({"user", question});
    tokens = prompt();
  }
  TextResult answer = generator_.complete_tokens(tokens, options, sink);
  messages_.push_back({"assistant", answer.text});
  return answer;
}

std::vector<int64_t> Chat::prompt() const {
  const text::Tokenizer& tokenizer = generator_.tokenizer();
  const auto spelling = [&](text::TokenId id) {
    return id < 0 ? std::string() : std::string(tokenizer.bytes(id));
  };
  const text::Vocabulary& vocabulary = tokenizer.vocabulary();
  return to_tokens(tokenizer.encode_chat(
      template_.render({messages_, spelling(vocabulary.bos), spelling(vocabulary.eos), true})));
}

}  // namespace weft::generate
