// Flags of weft launch, and what a cluster's manager says in their place.
#include <algorithm>
#include <charconv>
#include <sstream>

#include "weft/cli/flags.h"
#include "weft/cli/parse/parse.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/dist/backends/names.h"
#include "weft/dist/rendezvous/host_place.h"

namespace weft::cli {
namespace {

using core::check;
using core::ConfigError;

constexpr int kMostHosts = 1024;

// A number of hosts, or their names.
void read_hosts(const std::string& text, dist::LaunchOptions& options) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, options.num_hosts);
  if (error == std::errc() && stop == end) {
    check<ConfigError>(options.num_hosts >= 1 && options.num_hosts <= kMostHosts,
                       "--hosts: expected 1 to ", kMostHosts, ", got ", options.num_hosts);
    return;
  }
  options.num_hosts = 1;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) options.host_names.push_back(name);
}

// One host per line; what follows the name, as in a hostfile of MPI, is not read.
void read_hostfile(const std::string& path, dist::LaunchOptions& options) {
  constexpr uint64_t kMostBytes = 1 << 20;
  std::istringstream lines(core::read_text_file(path, kMostBytes));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name;
    if (words >> name) options.host_names.push_back(name);
  }
  check<ConfigError>(!options.host_names.empty(), "--hostfile: ", path,
                     ": expected a host in each line, got none");
}

void check_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    // ssh would take it for an option.
    check<ConfigError>(!name.empty() && name[0] != '-', "--hosts: expected names of hosts, got '",
                       name, "'");
  }
}

// What was not given and the cluster's manager knows.
void take_place(const CLI::App& app, dist::LaunchOptions& options) {
  const auto place = dist::host_place_from_env();
  const bool is_given = app.count("--host") > 0 || !options.host_names.empty();
  const bool fits = app.count("--hosts") == 0 || (place && place->num_hosts == options.num_hosts);
  if (!place || is_given || !fits) return;
  options.num_hosts = place->num_hosts;
  options.host = place->host;
  if (app.count("--address") == 0) options.address = place->address;
  if (app.count("--port") == 0) options.port = place->port;
  check<ConfigError>(!options.address.empty(),
                     "--address: expected the address of host 0, got "
                     "nothing; ",
                     place->source, " says which host this is, not where host 0 is");
}

}  // namespace

std::optional<dist::LaunchOptions> parse_launch(const Args& args) {
  CLI::App app("Starts a program on n ranks: weft launch -n 2 -- PROGRAM ARGS…", "launch");
  dist::LaunchOptions options;
  std::string hosts;
  std::string hostfile;
  const auto dashes = std::find(args.begin(), args.end(), "--");
  app.add_option("-n,--num-ranks", options.num_ranks, "number of ranks on each host")
      ->check(whole_number(1, 1024));
  app.add_option("--backend", options.backend, dist::backend_choices() + " (default: auto)");
  app.add_option("--hosts", hosts,
                 "names of the hosts, to start the job on them by ssh; or their number, where weft "
                 "launch runs on each of them (default: 1)");
  app.add_option("--hostfile", hostfile, "a file with the names of the hosts, one per line");
  // Ranks read WEFT_HOST, WEFT_ADDRESS and WEFT_PORT for other things.
  app.add_option("--host", options.host, "which of them this is, from 0")
      ->envname("WEFT_LAUNCH_HOST")
      ->check(whole_number(0, 1023));
  app.add_option("--address", options.address,
                 "address of host 0 that all hosts reach (default: 127.0.0.1, or the first host)")
      ->envname("WEFT_LAUNCH_ADDRESS");
  app.add_option("--port", options.port, "port of the ranks' store there (default: any)")
      ->envname("WEFT_LAUNCH_PORT")
      ->check(whole_number(0, 65535));
  if (!parse_flags(app, {args.begin(), dashes}, {"--num-ranks"})) return std::nullopt;
  check<ConfigError>(dashes != args.end() && dashes + 1 != args.end(),
                     "launch: no program; write weft launch -n 2 -- PROGRAM ARGS…");
  options.command.assign(dashes + 1, args.end());
  if (!hosts.empty()) read_hosts(hosts, options);
  if (!hostfile.empty()) read_hostfile(hostfile, options);
  check_names(options.host_names);
  take_place(app, options);
  if (!options.host_names.empty() && app.count("--address") == 0) {
    const std::string& first = options.host_names.front();
    options.address = first.substr(first.find('@') + 1);
  }
  return options;
}

}  // namespace weft::cli
