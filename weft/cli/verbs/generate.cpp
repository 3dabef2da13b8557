#include <cstdio>
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

int generate_on_ranks(const ModelOptions& model, const dist::World& world,
                      const GenerateVerbOptions& options) {
  watch_interrupt();
  const Session session = open_session(model, world);
  const text::Tokenizer tokenizer = models::load_tokenizer(*session.file);
  std::vector<int64_t> prompt;
  if (session.is_root()) {
    const std::string text = options.prompt == "-" ? read_stdin() : options.prompt;
    prompt = to_tokens(tokenizer.encode(text));
  }
  prompt = share_tokens(session.group(), prompt);
  generate::Engine engine(session.loaded.model,
                          context_size(options.answer.context, *session.loaded.model));
  const Answer result = answer(engine, tokenizer, prompt, options.answer);
  if (session.is_root()) {
    TextOutput().write(options.answer.is_json ? core::dump_json(to_json(result, session)) + "\n"
                                              : "\n");
  }
  return exit_code(result);
}

}  // namespace

int run_generate(const GenerateVerbOptions& options) {
  return run_on_ranks(options.model, [&](const ModelOptions& model, const dist::World& world) {
    return generate_on_ranks(model, world, options);
  });
}

}  // namespace weft::cli
