#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace weft::testing {

/// Mounts a file system of 1 MiB on `folder` in a namespace of this process, which has one thread
/// (in_child). False if not allowed.
inline bool mount_small_disk(const std::string& folder) {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  return ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
}

}  // namespace weft::testing
