#include "weft/core/files/atomic_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"

namespace weft::core {
namespace {

namespace fs = std::filesystem;

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_there(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0;
}

void remove_quietly(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
}

}  // namespace

void check_output_folder(const std::string& given, bool replaces, const std::string& marker) {
  const std::string path = without_slashes(given);
  check<ConfigError>(!path.empty() && path.find('\0') == std::string::npos && path != "/",
                     quote(path), ": not a folder to write; check the path");
  if (!is_there(path)) return;
  check<ConfigError>(replaces, path, ": is there already; choose another path or give --force");
  std::error_code error;
  check<ConfigError>(fs::is_directory(fs::symlink_status(path, error)), path,
                     ": is there and no folder; choose another path");
  const bool is_empty = fs::is_empty(path, error);
  check<ConfigError>(is_empty || fs::exists(fs::path(path) / marker, error), path, ": holds no ",
                     marker, ", so it is no model's folder; --force replaces only these");
}

AtomicFolder::AtomicFolder(const std::string& path, bool replaces, const std::string& marker)
    : path_(without_slashes(path)), temporary_path_(join(path_, ".tmp-", ::getpid())) {
  check_output_folder(path_, replaces, marker);
  // Left by a process that had our number and was killed.
  remove_quietly(temporary_path_);
  if (::mkdir(temporary_path_.c_str(), 0777) != 0) {
    fail_errno(path_, "cannot make " + temporary_path_, errno);
  }
}

AtomicFolder::~AtomicFolder() {
  if (!is_committed_) remove_quietly(temporary_path_);
}

void AtomicFolder::replace_old() {
  // Both names change places at once; then the temporary one holds what was there before.
  if (::renameat2(AT_FDCWD, temporary_path_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) ==
      0) {
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) {
    fail_errno(path_, "cannot exchange it with " + temporary_path_, errno);
  }
  // A file system without that: for an instant there is nothing at the path.
  const std::string old = join(path_, ".old-", ::getpid());
  if (::rename(path_.c_str(), old.c_str()) != 0) fail_errno(path_, "cannot rename", errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail_errno(path_, "cannot rename " + temporary_path_ + " to it", errno);
  }
  temporary_path_ = old;
}

void AtomicFolder::commit() {
  sync_folder_of(temporary_path_ + "/.");
  const bool is_old_there = is_there(path_);
  if (is_old_there) {
    replace_old();
  } else if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail_errno(path_, "cannot rename " + temporary_path_ + " to it", errno);
  }
  is_committed_ = true;
  sync_folder_of(path_);
  if (is_old_there) remove_quietly(temporary_path_);
}

}  // namespace weft::core
