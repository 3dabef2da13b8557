#include "tests/support/two_hosts.h"

#include <unistd.h>

#include "tests/support/run_command.h"

namespace weft::test {
namespace {

using Strings = std::vector<std::string>;

}  // namespace

TwoHosts::TwoHosts() {
  if (run_command({"sh", "-c", "command -v ip"}).status != 0) {
    problem_ = "there is no program ip; install iproute2";
    return;
  }
  const std::string left = space(0);
  const std::string right = space(1);
  const std::vector<Strings> steps = {
      {"ip", "netns", "add", left},
      {"ip", "netns", "add", right},
      {"ip", "link", "add", "wire", "netns", left, "type", "veth", "peer", "name", "wire", "netns",
       right},
      {"ip", "-n", left, "addr", "add", address() + "/24", "dev", "wire"},
      {"ip", "-n", right, "addr", "add", other_address() + "/24", "dev", "wire"},
      {"ip", "-n", left, "link", "set", "lo", "up"},
      {"ip", "-n", right, "link", "set", "lo", "up"},
      {"ip", "-n", left, "link", "set", "wire", "up"},
      {"ip", "-n", right, "link", "set", "wire", "up"},
  };
  for (const Strings& step : steps) {
    if (!run(step)) return;
  }
}

TwoHosts::~TwoHosts() {
  for (const int host : {0, 1}) run_command({"sh", "-c", "ip netns del " + space(host)});
}

// Host 1's end, so that host 0 keeps its address, as with a cable that is pulled out.
void TwoHosts::cut() { run({"ip", "-n", space(1), "link", "set", "wire", "down"}); }

bool TwoHosts::run(const Strings& command) {
  const CommandResult result = run_command(command);
  if (result.status == 0) return true;
  problem_ = "network namespaces cannot be made here: ";
  for (const std::string& word : command) problem_ += word + " ";
  problem_ += "says: " + result.err;
  return false;
}

std::string TwoHosts::space(int host) const {
  return "weft-" + std::to_string(getpid()) + "-" + name(host);
}

Strings TwoHosts::on(int host, const Strings& command) const {
  Strings all = {"ip", "netns", "exec", space(host), "env", "WEFT_HOST=" + name(host)};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Strings TwoHosts::launch_flags(int host) const {
  return {"--hosts",   "2",       "--host", std::to_string(host),
          "--address", address(), "--port", std::to_string(port())};
}

}  // namespace weft::test
