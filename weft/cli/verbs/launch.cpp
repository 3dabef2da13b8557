#include "weft/dist/launch/launch.h"

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
  app.add_option("--backend", options.backend,
                 "auto, shm, gloo, mpi, hierarchical or nccl (default: auto)");
  app.add_option("--hosts", options.num_hosts,
                 "hosts of the job; weft launch runs on each of them (default: 1)")
      ->check(whole_number(1, 1024));
  app.add_option("--host", options.host, "which of them this is, from 0")
      ->check(whole_number(0, 1023));
  app.add_option("--address", options.address,
                 "address of host 0 that all hosts reach (default: 127.0.0.1)");
  app.add_option("--port", options.port, "port of the ranks' store there (default: any)")
      ->check(whole_number(0, 65535));
  if (!parse_flags(app, {args.begin(), dashes}, {"--num-ranks"})) return 0;
  core::check<core::ConfigError>(dashes != args.end() && dashes + 1 != args.end(),
                                 "launch: no program; write weft launch -n 2 -- PROGRAM ARGS…");
  options.command.assign(dashes + 1, args.end());
  return dist::launch(options);
}

}  // namespace weft::cli
