// Flags of the verbs that look at a model or a machine, or start a program.
#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"

namespace weft::cli {

std::optional<TokenizeOptions> parse_tokenize(const Args& args) {
  CLI::App app("Shows the tokens of a text; no special token is parsed out of it.", "tokenize");
  TokenizeOptions options;
  app.add_option("model,-m,--model", options.model, "the model whose tokenizer is used");
  app.add_option("-p,--prompt", options.prompt, "the text; - reads stdin");
  app.add_flag("--add-special", options.adds_special,
               "also those that the tokenizer puts around a text, e.g. bos");
  app.add_flag("--json", options.is_json, "print {\"tokens\": […]}");
  if (!parse_flags(app, args, {"--prompt"})) return std::nullopt;
  return options;
}

std::optional<InspectOptions> parse_inspect(const Args& args) {
  CLI::App app(
      "Shows a model's tensors, how they are cut and what each rank holds. With --shard-info, "
      "--tensors or without config.json: what `weft shard` would write.",
      "inspect");
  InspectOptions options;
  add_cut_flags(app, options.cut);
  app.add_option("--tp,--tensor-parallel-size", options.tp, "ranks to cut it over (default: 1)")
      ->check(whole_number(1, 1024));
  app.add_flag("--json", options.is_json, "print one JSON object");
  app.add_flag("--plan", options.shows_plan, "also count what each rank will read, and how");
  add_expert_split_flag(app, options.expert_split);
  add_head_split_flag(app, options.head_split);
  if (!parse_flags(app, args)) return std::nullopt;
  check_cut_flags(options.cut);
  return options;
}

std::optional<DoctorOptions> parse_doctor(const Args& args) {
  CLI::App app("Checks this machine and shows what works.", "doctor");
  DoctorOptions options;
  options.command = command_of("doctor", args);
  app.add_option("model,-m,--model", options.model, "the model to try");
  app.add_flag("--sum-over-ranks", options.is_rank,
               "only sum over the ranks that a launcher has started");
  if (!parse_flags(app, args)) return std::nullopt;
  return options;
}

std::optional<CompletionOptions> parse_completion(const Args& args) {
  CLI::App app(
      "Prints what a shell reads to complete verbs and flags, or the page of `man weft`. Packages "
      "install all three.",
      "completion");
  CompletionOptions options;
  app.add_option("format,--format", options.format, "bash, zsh or man")
      ->check(CLI::IsMember({"bash", "zsh", "man"}));
  if (!parse_flags(app, args, {"--format"})) return std::nullopt;
  return options;
}

}  // namespace weft::cli
