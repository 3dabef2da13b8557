#include "weft/core/files/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::core {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

std::string open_error(const std::string& path) {
  return replaced(error_text([&] { File file(path); }), path, "FILE");
}

std::string read_at(const File& file, uint64_t offset, size_t count) {
  std::string bytes(count, '?');
  file.read_at(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(File, ReadsAtAnyPosition) {
  const TempDir dir;
  const File file(dir.write("a", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(read_at(file, 0, 10), "0123456789");
  EXPECT_EQ(read_at(file, 7, 3), "789");
  EXPECT_EQ(read_at(file, 10, 0), "");
}

TEST(File, ReadsBeyondFourGigabytes) {
  const TempDir dir;
  const uint64_t size = (uint64_t{5} << 30) + 3;
  const File file(dir.write_sparse("a", "x", size));
  EXPECT_EQ(file.size(), size);
  EXPECT_EQ(read_at(file, size - 3, 3), std::string(3, '\0'));
}

TEST(File, ReadingPastTheEndNamesBothSizes) {
  const TempDir dir;
  const std::string path = dir.write("a", "0123456789");
  const File file(path);
  EXPECT_EQ(replaced(error_text([&] { read_at(file, 8, 4); }), path, "FILE"),
            "FormatError: FILE: truncated: need 4 bytes at byte 8, the file ends at byte 10");
  std::filesystem::resize_file(path, 3);
  EXPECT_EQ(replaced(error_text([&] { read_at(file, 0, 10); }), path, "FILE"),
            "FormatError: FILE: truncated: need 10 bytes at byte 0, the file ends at byte 3");
}

TEST(File, NamesABlankPathInQuotes) {
  EXPECT_EQ(error_text([] { File file(" "); }), "FormatError: ' ': no such file; check the path");
}

TEST(File, RefusesAPositionThatTheSystemCannotExpress) {
  const TempDir dir;
  const std::string path = dir.write("a", "0123456789");
  const File file(path);
  EXPECT_EQ(replaced(error_text([&] { read_at(file, uint64_t{1} << 63, 1); }), path, "FILE"),
            "IoError: FILE: cannot read at byte 9223372036854775808: Invalid argument");
}

TEST(File, OpensThroughALink) {
  const TempDir dir;
  dir.write("a", "abc");
  std::filesystem::create_symlink("a", dir.at("link"));
  EXPECT_EQ(read_at(File(dir.at("link")), 0, 3), "abc");
}

TEST(File, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.at("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", dir.at("dangling"));
  dir.write("a", "");
  EXPECT_EQ(open_error(dir.path()), "FormatError: FILE: not a regular file; give a file's path");
  EXPECT_EQ(open_error(dir.at("fifo")),
            "FormatError: FILE: not a regular file; give a file's path");
  EXPECT_EQ(open_error("/dev/zero"), "FormatError: FILE: not a regular file; give a file's path");
  EXPECT_EQ(open_error(dir.at("dangling")), "FormatError: FILE: no such file; check the path");
  EXPECT_EQ(open_error(dir.at("none")), "FormatError: FILE: no such file; check the path");
  EXPECT_EQ(open_error(dir.at("a/b")), "FormatError: FILE: no such file; check the path");
  EXPECT_EQ(error_text([] { File file(""); }), "FormatError: '': no such file; check the path");
  EXPECT_EQ(error_text([] { File file(std::string("a\0b", 3)); }),
            "FormatError: 'a\\x00b': a NUL byte in the path; check the path");
}

TEST(File, WithoutPermissionIsTheSystemsRefusal) {
  const TempDir dir;
  const std::string path = dir.write("secret", "abc");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  constexpr uid_t kNobody = 65534;
  const std::string text = testing::in_child([&] {
    if (::geteuid() == 0 && ::seteuid(kNobody) != 0) return std::string("seteuid failed");
    return open_error(path);
  });
  EXPECT_EQ(text, "IoError: FILE: cannot open: Permission denied");
}

TEST(File, ReadTextFileHasALimit) {
  const TempDir dir;
  const std::string path = dir.write("a", "12345");
  EXPECT_EQ(read_text_file(path, 5), "12345");
  EXPECT_EQ(replaced(error_text([&] { read_text_file(path, 4); }), path, "FILE"),
            "FormatError: FILE: 5 bytes, expected at most 4");
  EXPECT_EQ(read_text_file(dir.write("empty", ""), 0), "");
}

TEST(FileDescriptor, MovesOwnershipAndClosesOnce) {
  const TempDir dir;
  int raw = -1;
  {
    FileDescriptor first(::dup(0));
    raw = first.get();
    FileDescriptor second(std::move(first));
    EXPECT_EQ(second.get(), raw);
    FileDescriptor third;
    EXPECT_FALSE(third.is_open());
    third = std::move(second);
    EXPECT_EQ(third.get(), raw);
  }
  EXPECT_EQ(::close(raw), -1);
}

}  // namespace
}  // namespace weft::core
