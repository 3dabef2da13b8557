#include "weft/core/files/mapped_window.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::core {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

std::byte* bytes_of(std::string& text) { return reinterpret_cast<std::byte*>(text.data()); }

TEST(MappedWindow, CopiesFromAnyPosition) {
  const TempDir dir;
  std::string content(20000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 % 251);
  const File file(dir.write("a", content));
  const MappedWindow window(file, 5000, 9000);
  std::string first(10, '?'), last(100, '?');
  window.copy(
      std::vector<MappedWindow::Copy>{{8900, 100, bytes_of(last)}, {0, 10, bytes_of(first)}});
  EXPECT_EQ(first, content.substr(5000, 10));
  EXPECT_EQ(last, content.substr(13900, 100));
}

TEST(MappedWindow, LiesWithinTheFile) {
  const TempDir dir;
  const std::string path = dir.write("a", "0123456789");
  const File file(path);
  EXPECT_EQ(replaced(error_text([&] { MappedWindow(file, 4, 7); }), path, "FILE"),
            "InternalError: core.MappedWindow: 7 bytes at byte 4 of FILE");
  EXPECT_EQ(replaced(error_text([&] { MappedWindow(file, UINT64_MAX, 2); }), path, "FILE"),
            "InternalError: core.MappedWindow: 2 bytes at byte 18446744073709551615 of FILE");
}

TEST(MappedWindow, AFileThatBecomesShorterIsAnErrorEachTime) {
  const TempDir dir;
  const std::string path = dir.write("a", std::string(100000, 'x'));
  const File file(path);
  const MappedWindow window(file, 0, 100000);
  std::filesystem::resize_file(path, 10);
  std::string place(100, '?');
  for (const uint64_t offset : {uint64_t{50000}, uint64_t{90000}, uint64_t{0}}) {
    const std::vector<MappedWindow::Copy> copies = {{offset, 100, bytes_of(place)}};
    EXPECT_EQ(
        replaced(error_text([&] { window.copy(copies); }), path, "FILE"),
        "FormatError: FILE: truncated: need 100000 bytes at byte 0, the file ends at byte 10");
  }
}

TEST(MappedWindow, OtherBusErrorsEndTheProcessAsBefore) {
  const TempDir dir;
  const File file(dir.write("a", "0123456789"));
  const MappedWindow window(file, 0, 10);
  // By the signal, or as a sanitizer's handler ends it.
  EXPECT_DEATH(raise(SIGBUS), "");
}

}  // namespace
}  // namespace weft::core
