#include "weft/dist/launch.h"

#include <algorithm>

#include "weft/cli/flags.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"

namespace weft::cli {

int run_launch(const Args& args) {
  CLI::App app("Starts a program on n ranks: weft launch -n 2 -- PROGRAM ARGS…", "launch");
  dist::LaunchOptions options;
  const auto dashes = std::find(args.begin(), args.end(), "--");
  app.add_option("-n,--num-ranks", options.num_ranks, "number of ranks")
      ->check(whole_number(1, 1024));
  app.add_option("--backend", options.backend, "auto, shm, gloo, mpi or nccl (default: auto)");
  app.add_option("--port", options.port, "port of the ranks' store on 127.0.0.1 (default: any)")
      ->check(whole_number(0, 65535));
  if (!parse_flags(app, {args.begin(), dashes}, {"--num-ranks"})) return 0;
  core::check<core::ConfigError>(dashes != args.end() && dashes + 1 != args.end(),
                                 "launch: no program; write weft launch -n 2 -- PROGRAM ARGS…");
  options.command.assign(dashes + 1, args.end());
  return dist::launch(options);
}

}  // namespace weft::cli
