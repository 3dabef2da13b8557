// Flags of the verbs that look at a model or a machine, or start a program.
#include <algorithm>

#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"
#include "weft/dist/backends/names.h"

namespace weft::cli {

std::optional<TokenizeOptions> parse_tokenize(const Args& args) {
  CLI::App app("Shows the tokens of a text; special tokens are neither added nor parsed.",
               "tokenize");
  TokenizeOptions options;
  app.add_option("model,-m,--model", options.model, "the model whose tokenizer is used");
  app.add_option("-p,--prompt", options.prompt, "the text; - reads stdin");
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

std::optional<dist::LaunchOptions> parse_launch(const Args& args) {
  CLI::App app("Starts a program on n ranks: weft launch -n 2 -- PROGRAM ARGS…", "launch");
  dist::LaunchOptions options;
  const auto dashes = std::find(args.begin(), args.end(), "--");
  app.add_option("-n,--num-ranks", options.num_ranks, "number of ranks")
      ->check(whole_number(1, 1024));
  app.add_option("--backend", options.backend, dist::backend_choices() + " (default: auto)");
  app.add_option("--hosts", options.num_hosts,
                 "hosts of the job; weft launch runs on each of them (default: 1)")
      ->check(whole_number(1, 1024));
  // Ranks read WEFT_HOST and WEFT_ADDRESS for other things.
  app.add_option("--host", options.host, "which of them this is, from 0")
      ->envname("WEFT_LAUNCH_HOST")
      ->check(whole_number(0, 1023));
  app.add_option("--address", options.address,
                 "address of host 0 that all hosts reach (default: 127.0.0.1)")
      ->envname("WEFT_LAUNCH_ADDRESS");
  app.add_option("--port", options.port, "port of the ranks' store there (default: any)")
      ->check(whole_number(0, 65535));
  if (!parse_flags(app, {args.begin(), dashes}, {"--num-ranks"})) return std::nullopt;
  core::check<core::ConfigError>(dashes != args.end() && dashes + 1 != args.end(),
                                 "launch: no program; write weft launch -n 2 -- PROGRAM ARGS…");
  options.command.assign(dashes + 1, args.end());
  return options;
}

}  // namespace weft::cli
