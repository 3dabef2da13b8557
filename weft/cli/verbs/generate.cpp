#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/answer.h"
#include "weft/cli/verbs.h"
#include "weft/cli/verbs/adapter.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/config/sources.h"

namespace weft::cli {
namespace {

struct GenerateOptions {
  std::string prompt;
  AnswerOptions answer;
  int64_t context = 0;
  bool is_json = false;
};

int generate_on_ranks(const ModelFlags& flags, const dist::World& world, const void* untyped) {
  GenerateOptions options = *static_cast<const GenerateOptions*>(untyped);
  watch_interrupt();
  const Session session = open_session(flags, world);
  const text::Tokenizer tokenizer = models::load_tokenizer(*session.file);
  std::vector<int64_t> prompt;
  if (session.is_root()) {
    const std::string text = options.prompt == "-" ? read_stdin() : options.prompt;
    prompt = to_tokens(tokenizer.encode(text));
  }
  prompt = share_tokens(session.group(), prompt);
  generate::Engine engine(session.loaded.model,
                          context_size(options.context, *session.loaded.model));
  options.answer.is_streamed = !options.is_json;
  const Answer result = answer(engine, tokenizer, prompt, options.answer);
  if (session.is_root()) {
    TextOutput().write(options.is_json ? core::dump_json(to_json(result, session)) + "\n" : "\n");
  }
  return exit_code(result);
}

}  // namespace

int run_generate(const Args& args) {
  CLI::App app("Continues a text: no chat template, no special tokens.", "generate");
  ModelFlags flags;
  GenerateOptions options;
  flags.activations = kFastActivations;
  add_model_flags(app, flags);
  add_device_flag(app, flags);
  add_cache_flag(app, flags);
  add_adapter_flag(app, flags);
  app.add_option("-p,--prompt", options.prompt, "the text to continue; - reads stdin");
  add_answer_flags(app, options.answer, options.context);
  app.add_flag("--json", options.is_json, "print one JSON object instead of the text");
  if (!parse_flags(app, args, {"--prompt"})) return 0;
  generate::check_sampler(options.answer.generate.sampler);
  return run_on_ranks(flags, "generate", args, generate_on_ranks, &options);
}

}  // namespace weft::cli
