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
      {"ip", "-n", left, "addr", "add", address6() + "/64", "nodad", "dev", "wire"},
      {"ip", "-n", right, "addr", "add", "fd13:213:77::2/64", "nodad", "dev", "wire"},
      // What `ip netns exec` shows as /etc/hosts.
      {"sh", "-c", "mkdir -p /etc/netns/" + left + " /etc/netns/" + right},
      {"sh", "-c",
       "echo 127.0.0.1 localhost | tee " + folder(0) + "/hosts " + folder(1) + "/hosts"},
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
  for (const int host : {0, 1}) {
    run_command({"sh", "-c", "ip netns del " + space(host) + "; rm -rf " + folder(host)});
  }
}

// Host 1's end, so that host 0 keeps its address, as with a cable that is pulled out.
void TwoHosts::cut() { run({"ip", "-n", space(1), "link", "set", "wire", "down"}); }
void TwoHosts::mend() { run({"ip", "-n", space(1), "link", "set", "wire", "up"}); }

// Rules of routing, which every kernel has. What comes in for this host is looked up in them, too.
void TwoHosts::filter() {
  const std::string from = "iif wire ipproto tcp ";
  const std::string number = std::to_string(port());
  for (const int host : {0, 1}) {
    const std::string ip = "ip -n " + space(host) + " rule ";
    run({"sh", "-ec",
         ip + "add pref 10 " + from + "dport " + number + " lookup local; " + ip + "add pref 11 " +
             from + "sport " + number + " lookup local; " + ip + "add pref 12 " + from +
             "blackhole; " + ip + "add pref 100 lookup local; " + ip + "del pref 0"});
  }
}

void TwoHosts::tell_name() {
  for (const int host : {0, 1}) {
    run({"sh", "-c", "echo " + address() + " " + late_name() + " >> " + folder(host) + "/hosts"});
  }
}

std::string TwoHosts::folder(int host) const { return "/etc/netns/" + space(host); }

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
