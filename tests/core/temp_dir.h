#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace weft::testing {

/// A new folder that goes, with all in it, at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp failed for " << pattern;
    path_ = pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::string& path() const { return path_; }
  /// Path of `name` in the folder.
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    // A new file: some file systems wait for the disk when an old one is cut and written again.
    std::filesystem::remove(at(name));
    std::ofstream(at(name), std::ios::binary) << bytes;
    return at(name);
  }
  /// Changes one byte of a file and returns its path.
  std::string patch(const std::string& name, size_t at_byte, char value) const {
    std::fstream file(at(name), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at_byte)).put(value);
    return at(name);
  }
  /// Makes a sparse file of `size` bytes that begins with `bytes`.
  std::string write_sparse(const std::string& name, const std::string& bytes, uint64_t size) const {
    write(name, bytes);
    std::filesystem::resize_file(at(name), size);
    return at(name);
  }
  /// The whole of a file.
  std::string read(const std::string& name) const {
    std::ifstream in(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// How many files the folder holds.
  size_t num_files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

}  // namespace weft::testing
