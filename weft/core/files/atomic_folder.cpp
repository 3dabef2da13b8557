#include "weft/core/files/atomic_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/leftovers.h"

namespace weft::core {
namespace {

namespace fs = std::filesystem;

// "a/./" is "a": a rename takes the last name only.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && (path.ends_with('/') || path.ends_with("/."))) path.pop_back();
  return path;
}

bool ends_in_a_name(const std::string& path) {
  return !path.empty() && path.find('\0') == std::string::npos && path != "/" && path != "." &&
         path != ".." && !path.ends_with("/..");
}

bool is_there(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0;
}

void remove_quietly(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
}

// The first thing below the folder that is no part of its kind.
std::optional<std::string> find_foreign(const std::string& folder, const ReplaceableFolder& kind) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().lexically_relative(folder).string();
    const fs::file_type type = entry->symlink_status(error).type();
    const bool is_plain = type == fs::file_type::regular || type == fs::file_type::symlink ||
                          type == fs::file_type::directory;
    if (!is_plain || !kind.is_part(name)) return name;
  }
  if (error) fail_errno(folder, "cannot list the folder", error.value());
  return std::nullopt;
}

}  // namespace

void check_output_folder(const std::string& given, bool replaces, const ReplaceableFolder& kind) {
  const std::string path = without_slashes(given);
  check<ConfigError>(ends_in_a_name(path), quote(given),
                     ": not a folder to write; give a path that ends in its name");
  if (!is_there(path)) return;
  check<ConfigError>(replaces, path, ": is there already; choose another path or ", kind.remedy);
  std::error_code error;
  check<ConfigError>(fs::is_directory(fs::symlink_status(path, error)), path,
                     ": is there and no folder; choose another path");
  if (fs::is_empty(path, error)) return;
  check<ConfigError>(fs::exists(fs::path(path) / kind.marker, error), path, ": holds no ",
                     kind.marker, ", so it is not replaced; choose another path");
  const auto foreign = find_foreign(path, kind);
  check<ConfigError>(!foreign, path, ": holds ", quote(foreign.value_or("")),
                     ", which replacing the folder would remove; choose another path or move that "
                     "elsewhere");
}

AtomicFolder::AtomicFolder(const std::string& path, bool replaces, ReplaceableFolder kind)
    : path_(without_slashes(path)),
      replaces_(replaces),
      kind_(std::move(kind)),
      temporary_path_(temporary_name(path_)) {
  check_output_folder(path_, replaces_, kind_);
  remove_leftovers(path_);
  if (::mkdir(temporary_path_.c_str(), 0777) != 0) {
    fail_errno(path_, "cannot make " + temporary_path_, errno);
  }
  held_ = FileDescriptor(::open(temporary_path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!held_.is_open()) {
    const int error = errno;
    ::rmdir(temporary_path_.c_str());
    fail_errno(path_, "cannot open " + temporary_path_, error);
  }
  hold_temporary(held_.get());
}

AtomicFolder::~AtomicFolder() {
  // Removing a folder takes a descriptor, and there may be no other.
  held_.reset();
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

// Something may have come into it since it was checked.
void AtomicFolder::remove_old() {
  const auto foreign = find_foreign(temporary_path_, kind_);
  check<IoError>(!foreign, path_, ": is written, but ", quote(foreign.value_or("")),
                 " had come into the old folder, which is kept as ", temporary_path_,
                 "; look at it and remove it");
  remove_quietly(temporary_path_);
}

void AtomicFolder::commit() {
  sync_folder_of(temporary_path_ + "/.");
  check_output_folder(path_, replaces_, kind_);
  const bool is_old_there = is_there(path_);
  if (is_old_there) {
    replace_old();
  } else if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail_errno(path_, "cannot rename " + temporary_path_ + " to it", errno);
  }
  is_committed_ = true;
  sync_folder_of(path_);
  if (is_old_there) remove_old();
}

}  // namespace weft::core
