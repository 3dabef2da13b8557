#include "weft/cli/answer.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"

namespace weft::cli {
namespace {

int generate_on_ranks(const ModelOptions& model, const dist::World& world,
                      const GenerateVerbOptions& options) {
  watch_interrupt();
  const Session session = open_session(model, world);
  generate::TextGenerator generator = make_generator(session, options.answer);
  const std::string prompt = given_text(session, options.prompt, options.prompt_file);
  const auto answer =
      generator.complete(prompt, options.answer.text, answer_sink(session, options.answer));
  return finish_answer(answer, session, options.answer, generator.tokenizer());
}

}  // namespace

int run_generate(const GenerateVerbOptions& options) {
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return generate_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
