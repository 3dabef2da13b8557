#pragma once

#include <string>

namespace weft::core {

/// Writes a folder so that its path shows either what was there before or all of the new folder,
/// whatever happens between: made beside it (path + ".tmp-<pid>"), synced, then put in its place.
/// Without commit() the folder beside it is removed and the path left alone.
class AtomicFolder {
 public:
  /// What is at `path` already is an error (ConfigError) unless `replaces`: then it must be an
  /// empty folder or one with a file `marker` in it, so that no other folder is lost by a wrong
  /// path. Throws IoError when the system refuses.
  AtomicFolder(const std::string& path, bool replaces, const std::string& marker);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::string& path() const { return path_; }
  /// Where its files are written. They must be on disk (fsync) before commit().
  const std::string& temporary_path() const { return temporary_path_; }
  /// Makes the new folder visible at the path; the old one goes. Throws IoError.
  void commit();

 private:
  void replace_old();

  std::string path_;
  std::string temporary_path_;
  bool is_committed_ = false;
};

/// Throws as AtomicFolder's constructor for an output that can't be written to `path`, without
/// making anything: for a check before long work.
void check_output_folder(const std::string& path, bool replaces, const std::string& marker);

}  // namespace weft::core
