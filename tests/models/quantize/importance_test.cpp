#include "weft/models/quantize/importance.h"

#include <ATen/ATen.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "weft/io/tensor_file.h"

namespace weft::models {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

std::string read_error(const std::string& path) {
  return replaced(error_text([&] { read_importance(path); }), path, "FILE");
}

void append(std::string& bytes, const std::string& text) { bytes += text; }
template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// llama.cpp's form of before 2025: of one entry.
std::string legacy_bytes() {
  std::string bytes;
  append(bytes, int32_t{1});
  append(bytes, int32_t{5});
  append(bytes, std::string("blk.0"));
  append(bytes, int32_t{2});
  append(bytes, int32_t{4});
  for (const float number : {2.0F, 4.0F, 6.0F, 8.0F}) append(bytes, number);
  return bytes;
}

TEST(Importance, IsReadAsItWasWritten) {
  const TempDir dir;
  Importance importance;
  importance.texts = {"a.txt"};
  importance.num_chunks = 3;
  importance.chunk_size = 512;
  importance.tensors["one"] = {at::rand({1, 8}), at::full({1}, 6.0F), at::rand({8, 8})};
  importance.tensors["experts"] = {at::rand({3, 4}), at::tensor({2.0F, 0.0F, 5.0F}), {}};
  write_importance(importance, dir.at("imatrix.gguf"));
  const Importance got = read_importance(dir.at("imatrix.gguf"));
  EXPECT_EQ(got.texts, importance.texts);
  EXPECT_EQ(got.num_chunks, 3);
  EXPECT_EQ(got.chunk_size, 512);
  ASSERT_EQ(got.tensors.size(), 2U);
  const InputStatistics& one = importance.tensors["one"];
  const InputStatistics& experts = importance.tensors["experts"];
  EXPECT_TRUE(at::equal(got.of("one", {8}), one.squares[0] / 6));
  EXPECT_TRUE(at::equal(got.products_of("one"), one.products / 6));
  EXPECT_TRUE(at::equal(got.of("experts", {4, 2, 3}), experts.squares[2] / 5));
  EXPECT_FALSE(got.of("experts", {4, 1, 3}).defined()) << "no token reached it";
  EXPECT_FALSE(got.of("other", {4}).defined());
  EXPECT_FALSE(got.products_of("experts").defined());
  EXPECT_EQ(
      error_text([&] { got.of("one", {16}); }),
      "FormatError: importance matrix: 'one', expected 16 columns of matrix 0, got [1, 8]; it "
      "is of another model");
}

// Widths that divide the model's, and other numbers of experts, say nothing of this one's columns.
TEST(Importance, OfAnotherModelIsRefused) {
  Importance importance;
  importance.tensors["dense"] = {at::rand({1, 8}), at::full({1}, 6.0F), {}};
  importance.tensors["experts"] = {at::rand({4, 4}), at::ones({4}), {}};
  const auto error = [&](const char* name, const TensorMatrix& matrix) {
    return error_text([&] { importance.of(name, matrix); });
  };
  EXPECT_EQ(error("dense", {4}),
            "FormatError: importance matrix: 'dense', expected 4 columns of matrix 0, got [1, 8]; "
            "it is of another model");
  EXPECT_EQ(error("dense", {4, 1, 3}),
            "FormatError: importance matrix: 'dense', expected 4 columns of matrix 1 of 3, got "
            "[1, 8]; it is of another model");
  EXPECT_EQ(error("experts", {4, 0, 2}),
            "FormatError: importance matrix: 'experts', expected 4 columns of matrix 0 of 2, got "
            "[4, 4]; it is of another model");
}

TEST(Importance, OfTheOlderFormIsTheSame) {
  const TempDir dir;
  const Importance got = read_importance(dir.write("old", legacy_bytes()));
  ASSERT_EQ(got.tensors.size(), 1U);
  EXPECT_TRUE(at::equal(got.of("blk.0", {4}), at::tensor({1.0F, 2.0F, 3.0F, 4.0F})));
  // All experts' numbers in one row.
  EXPECT_TRUE(at::equal(got.of("blk.0", {2, 1, 2}), at::tensor({3.0F, 4.0F})));
}

TEST(Importance, RefusesOtherFiles) {
  const TempDir dir;
  EXPECT_EQ(read_error(test::family_path("llama", "model.gguf")),
            "FormatError: FILE: general.type, expected 'imatrix'; give a file of weft imatrix or "
            "llama-imatrix");
  EXPECT_EQ(
      read_error(dir.write("cut", legacy_bytes().substr(0, 30))),
      "FormatError: FILE: byte 21, expected 16 more, got 9; it is no importance matrix or was "
      "cut off");
  EXPECT_EQ(read_error(dir.write("text", "not one of these")),
            "FormatError: FILE: byte 0: entries, got 544501614; it is no importance matrix");
  EXPECT_EQ(read_error(dir.write("empty", "")),
            "FormatError: FILE: byte 0, expected 4 more, got 0; it is no importance matrix or was "
            "cut off");
  Importance importance;
  importance.tensors["one"] = {at::full({1, 4}, INFINITY), at::ones({1}), {}};
  write_importance(importance, dir.at("inf"));
  EXPECT_EQ(read_error(dir.at("inf")),
            "FormatError: FILE: tensor 'one.in_sum2', expected finite numbers");
}

}  // namespace
}  // namespace weft::models
