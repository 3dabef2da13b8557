#include "weft/dist/launch.h"

#include <optional>

#include "weft/core/error.h"
#include "weft/dist/backends.h"
#include "weft/dist/job.h"

namespace weft::dist {

int launch(const LaunchOptions& options) {
  using core::check;
  using core::ConfigError;
  check<ConfigError>(options.num_ranks >= 1, "weft launch: -n: expected at least 1 rank, got ",
                     options.num_ranks);
  check<ConfigError>(!options.command.empty(),
                     "weft launch: expected a program to start, got none; write it after --");
  check<ConfigError>(options.port >= 0 && options.port <= 65535,
                     "weft launch: --port: expected 0 to 65535, got ", options.port);
  // What this build lacks is said before mpirun is looked for.
  if (options.backend != "auto") find_backend(options.backend, RankInfo());
  Job job(options);
  return job.run();
}

}  // namespace weft::dist
