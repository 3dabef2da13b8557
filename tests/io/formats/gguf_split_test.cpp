#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"
#include "weft/io/sources.h"

namespace weft::io {
namespace {

using testing::gguf_key;
using testing::GgufBuilder;
using testing::open_error;
using testing::raw;
using testing::replaced;
using testing::TempDir;
using testing::tensor_text;

std::string part_name(int number, int count) {
  return core::join("m-0000", number, "-of-0000", count, ".gguf");
}

// Part `number` (from 0) of `count`, with one tensor named by its number.
std::string part(uint16_t number, uint16_t count, int32_t num_tensors) {
  GgufBuilder builder;
  builder.keys = {gguf_key("split.no", GgufType::kU16, raw(number)),
                  gguf_key("split.count", GgufType::kU16, raw(count)),
                  gguf_key("split.tensors.count", GgufType::kI32, raw(num_tensors))};
  builder.tensors = {{core::join("t", number), {1}, 0, core::join("dat", number)}};
  return builder.build();
}

class GgufSplit : public ::testing::Test {
 protected:
  GgufSplit() {
    for (int i = 0; i < 3; ++i) dir_.write(part_name(i + 1, 3), part(i, 3, 3));
  }
  std::string error() { return replaced(open_error(dir_.at(part_name(1, 3))), dir_.path(), "DIR"); }

  TempDir dir_;
};

TEST_F(GgufSplit, OpensAllPartsFromAnyOfThemOrTheFolder) {
  for (const std::string& path :
       {dir_.at(part_name(1, 3)), dir_.at(part_name(3, 3)), dir_.path()}) {
    const auto source = TensorFile::open(path);
    EXPECT_EQ(source->path(), path);
    ASSERT_EQ(source->tensors().size(), 3u);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(tensor_text(*source, core::join("t", i)), core::join("dat", i));
    }
    EXPECT_EQ(std::get<uint64_t>(source->metadata().at("split.no")), 0u);
  }
}

TEST_F(GgufSplit, AMissingPartIsNamed) {
  std::filesystem::remove(dir_.at(part_name(2, 3)));
  EXPECT_EQ(error(),
            "FormatError: FILE: part DIR/m-00002-of-00003.gguf is missing; fetch all 3 parts");
}

TEST_F(GgufSplit, PartsThatDoNotBelongTogetherAreRefused) {
  dir_.write(part_name(2, 3), part(2, 3, 3));
  EXPECT_EQ(error(),
            "FormatError: DIR/m-00002-of-00003.gguf: split.no 2, expected 1; give the parts their "
            "own names back");
  dir_.write(part_name(2, 3), part(1, 4, 3));
  EXPECT_EQ(error(),
            "FormatError: DIR/m-00002-of-00003.gguf: split.count 4, expected 3; use the parts of "
            "one model");
  dir_.write(part_name(2, 3), GgufBuilder{}.build());
  EXPECT_EQ(error(),
            "FormatError: DIR/m-00002-of-00003.gguf: split.count 0, expected 3; use the parts of "
            "one model");
}

TEST_F(GgufSplit, TensorsMustBeAsManyAsThePartsSay) {
  dir_.write(part_name(1, 3), part(0, 3, 7));
  EXPECT_EQ(error(),
            "FormatError: FILE: 3 tensors in all parts, expected split.tensors.count 7; fetch the "
            "parts again");
}

TEST_F(GgufSplit, ARenamedOrImpossiblePartIsRefused) {
  EXPECT_EQ(
      open_error(dir_.write("other.gguf", part(0, 3, 3))),
      "FormatError: FILE: part 0 of 3, expected a name that ends in -00001-of-00003.gguf; give "
      "the file its own name back");
  EXPECT_EQ(
      open_error(dir_.write("other.gguf", part(3, 3, 3))),
      "FormatError: FILE: part 3 of 3, expected a name that ends in -00004-of-00003.gguf; give "
      "the file its own name back");
  GgufBuilder huge;
  huge.keys = {gguf_key("split.count", GgufType::kU32, raw<uint32_t>(100'000))};
  EXPECT_EQ(
      open_error(dir_.write("other.gguf", huge.build())),
      "FormatError: FILE: split.count 100000, expected at most 99999; convert the model again");
  GgufBuilder text;
  text.keys = {gguf_key("split.count", GgufType::kString, testing::gguf_text("3"))};
  EXPECT_EQ(open_error(dir_.write("other.gguf", text.build())),
            "FormatError: FILE: key 'split.count': expected an integer; convert the model again");
}

TEST_F(GgufSplit, ASplitOfOneIsAPlainFile) {
  const auto source = TensorFile::open(dir_.write("other.gguf", part(0, 1, 1)));
  EXPECT_EQ(source->tensors().size(), 1u);
}

}  // namespace
}  // namespace weft::io
