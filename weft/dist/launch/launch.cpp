#include "weft/dist/launch/launch.h"

#include <optional>

#include "weft/core/error.h"
#include "weft/dist/backends/names.h"
#include "weft/dist/launch/job.h"

namespace weft::dist {

int launch(const LaunchOptions& options) {
  using core::check;
  using core::ConfigError;
  check<ConfigError>(options.num_ranks >= 1, "weft launch: ranks: expected at least 1, got ",
                     options.num_ranks);
  check<ConfigError>(!options.command.empty(),
                     "weft launch: expected a program to start, got none; name one");
  check<ConfigError>(options.port >= 0 && options.port <= 65535,
                     "weft launch: port: expected 0 to 65535, got ", options.port);
  const bool many = options.num_hosts > 1;
  check<ConfigError>(
      options.num_hosts >= 1 && options.host >= 0 && options.host < options.num_hosts,
      "weft launch: host: expected the number of one of ", options.num_hosts,
      " hosts, from 0, got ", options.host);
  check<ConfigError>(!many || options.port != 0,
                     "weft launch: the hosts don't know where to meet; give all of them the same "
                     "address of host 0 and port");
  // What this build lacks is said before mpirun is looked for.
  check<ConfigError>(!launch_needs(options.backend).mpirun_places || !many, "weft launch: backend ",
                     options.backend,
                     ": expected one host; across hosts start the program by mpirun, or use auto");
  Job job(options);
  return job.run();
}

}  // namespace weft::dist
