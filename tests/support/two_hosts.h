#pragma once

#include <string>
#include <vector>

namespace weft::test {

/// Two network namespaces of this machine with a wire between them: to programs inside, two hosts.
/// They go with this object. Needs iproute2 and the right to make namespaces.
class TwoHosts {
 public:
  TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;
  ~TwoHosts();

  /// Why they could not be made; empty if they are there.
  const std::string& problem() const { return problem_; }
  /// `command` as it runs on host 0 or 1, under the name that name() gives.
  std::vector<std::string> on(int host, const std::vector<std::string>& command) const;
  /// From now on nothing comes through between the hosts, or everything again.
  void cut();
  void mend();
  /// From now on a host takes packets for or from port() alone; others vanish, as in a firewall.
  void filter();
  /// From now on both hosts know the name late_name() for host 0.
  void tell_name();
  static std::string late_name() { return "late.example"; }
  static std::string name(int host) { return host == 0 ? "left" : "right"; }
  /// Flags of `weft launch` with which the hosts find each other.
  std::vector<std::string> launch_flags(int host) const;
  /// Host 0's address, as the other host sees it.
  static std::string address() { return "10.213.77.1"; }
  static std::string address6() { return "fd13:213:77::1"; }
  /// Host 1's address.
  static std::string other_address() { return "10.213.77.2"; }
  /// The name by which `ip netns exec` knows the host.
  std::string space(int host) const;
  static int port() { return 29511; }

 private:
  std::string folder(int host) const;
  bool run(const std::vector<std::string>& command);

  std::string problem_;
};

}  // namespace weft::test
