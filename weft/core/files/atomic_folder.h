#pragma once

#include <functional>
#include <string>

#include "weft/core/files/file.h"

namespace weft::core {

/// Which folders may be replaced by a new one, so that no other folder is lost by a wrong path:
/// empty ones, and those that hold `marker` and nothing but parts.
struct ReplaceableFolder {
  /// The file that every such folder has.
  std::string marker;
  /// Whether something is a part of such a folder, by its path below it: "config.json",
  /// "templates", "templates/a.jinja".
  std::function<bool(const std::string& name)> is_part;
  /// What to do to have one replaced, for messages: "give --force".
  std::string remedy;
};

/// Writes a folder so that its path shows either what was there before or all of the new folder,
/// whatever happens between: made beside it (path + ".tmp-<pid>"), synced, then put in its place.
/// What killed processes have left beside it goes first.
/// Without commit() the folder beside it is removed and the path left alone.
class AtomicFolder {
 public:
  /// Slashes and dots at the end of `path` mean nothing. What is there already is an error
  /// (ConfigError) unless `replaces`: then it must be a folder of this kind. Throws IoError when
  /// the system refuses.
  AtomicFolder(const std::string& path, bool replaces, ReplaceableFolder kind);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::string& path() const { return path_; }
  /// Where its files are written. They must be on disk (fsync) before commit().
  const std::string& temporary_path() const { return temporary_path_; }
  /// Makes the new folder visible at the path; the old one goes. Throws as the constructor for what
  /// has come to the path since, which stays, and IoError.
  void commit();

 private:
  void replace_old();
  void remove_old();

  std::string path_;
  bool replaces_;
  ReplaceableFolder kind_;
  std::string temporary_path_;
  FileDescriptor held_;
  bool is_committed_ = false;
};

/// Throws as AtomicFolder's constructor for an output that can't be written to `path`, without
/// making anything: for a check before long work.
void check_output_folder(const std::string& path, bool replaces, const ReplaceableFolder& kind);

}  // namespace weft::core
