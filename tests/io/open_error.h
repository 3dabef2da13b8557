#pragma once

#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/io/tensor_file.h"

namespace weft::testing {

/// The error of opening `path`, with the path written as FILE; "no error" if it opens.
inline std::string open_error(const std::string& path) {
  return replaced(error_text([&] { io::TensorFile::open(path); }), path, "FILE");
}

/// The error of opening a file of these bytes.
inline std::string bytes_error(const TempDir& dir, const std::string& name,
                               const std::string& bytes) {
  return open_error(dir.write(name, bytes));
}

/// The whole of one tensor's bytes.
inline std::string tensor_text(const io::TensorFile& source, const std::string& name) {
  const io::TensorMeta& meta = source.require(name);
  std::string bytes(meta.num_bytes, '?');
  source.read_at(meta.file, meta.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// A file that must be refused, and the message after "FormatError: FILE: ".
struct BadFile {
  const char* name;
  std::string bytes;
  const char* error;
};

/// Checks the message of each.
inline void expect_errors(const std::string& file_name, const std::vector<BadFile>& cases) {
  const TempDir dir;
  for (const BadFile& bad : cases) {
    EXPECT_EQ(bytes_error(dir, file_name, bad.bytes), core::join("FormatError: FILE: ", bad.error))
        << "case: " << bad.name;
  }
}

}  // namespace weft::testing
