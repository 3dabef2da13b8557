#include "weft/io/formats/byte_reader.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

TEST(ByteReader, ReadsLittleEndianInOrder) {
  const TempDir dir;
  const core::File file(dir.write("a", std::string("\x01\x02\x03\x04\xff\xff"
                                                   "ab",
                                                   8)));
  ByteReader reader(file, 100);
  EXPECT_EQ(reader.read<uint16_t>(), 0x0201);
  EXPECT_EQ(reader.read<uint8_t>(), 3);
  EXPECT_EQ(reader.read<uint8_t>(), 4);
  EXPECT_EQ(reader.read<int16_t>(), -1);
  EXPECT_EQ(reader.position(), 6u);
  EXPECT_EQ(reader.remaining(), 2u);
  EXPECT_EQ(reader.read_string(2), "ab");
  EXPECT_EQ(reader.read_string(0), "");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReader, StringsCrossTheBuffer) {
  const TempDir dir;
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) bytes += static_cast<char>('a' + i % 23);
  const core::File file(dir.write("a", bytes));
  ByteReader reader(file, bytes.size());
  std::string got;
  for (size_t step = 1; reader.remaining() > 0; step = step * 3 + 1) {
    got += reader.read_string(std::min<uint64_t>(step, reader.remaining()));
  }
  EXPECT_EQ(got, bytes);
}

TEST(ByteReader, MessagesNameTheSubjectThePlaceAndBothSizes) {
  const TempDir dir;
  const core::File file(dir.write("a", "0123456789"));
  ByteReader reader(file, 8);
  reader.read_string(3);
  const auto error = [&](auto action) { return replaced(error_text(action), file.path(), "FILE"); };
  EXPECT_EQ(
      error([&] { reader.read<uint64_t>(); }),
      "FormatError: FILE: header at byte 3: truncated: need 8 bytes, have 7; fetch or convert "
      "the file again");
  reader.set_subject("key", "a\nb");
  EXPECT_EQ(
      error([&] { reader.read_string(UINT64_MAX); }),
      "FormatError: FILE: key 'a\\x0ab' at byte 3: truncated: need 18446744073709551615 bytes, "
      "have 7; fetch or convert the file again");
  EXPECT_EQ(error([&] { reader.need_items(uint64_t{1} << 62, 8); }),
            "FormatError: FILE: key 'a\\x0ab' at byte 3: truncated: need 4611686018427387904 x 8 "
            "bytes, have 7; fetch or convert the file again");
  EXPECT_EQ(error([&] { reader.read_string(6); }),
            "FormatError: FILE: key 'a\\x0ab' at byte 3: the header goes on for 6 bytes, past the "
            "limit of 8 bytes");
  EXPECT_EQ(reader.read_string(5), "34567");
}

TEST(ByteReader, AFileThatBecameShorterIsAnError) {
  const TempDir dir;
  const std::string path = dir.write("a", "0123456789");
  const core::File file(path);
  std::filesystem::resize_file(path, 4);
  ByteReader reader(file, 100);
  EXPECT_EQ(replaced(error_text([&] { reader.read<uint64_t>(); }), path, "FILE"),
            "FormatError: FILE: truncated: need 10 bytes at byte 0, the file ends at byte 4");
}

}  // namespace
}  // namespace weft::io
