#include "weft/io/tensor_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"

namespace weft::io {
namespace {

using testing::braces;
using testing::bytes_error;
using testing::error_text;
using testing::GgufBuilder;
using testing::open_error;
using testing::replaced;
using testing::safetensors_bytes;
using testing::TempDir;
using testing::tensor_json;

std::string tensors(const std::vector<std::string>& names) {
  std::string body;
  for (const std::string& name : names) {
    if (!body.empty()) body += ",";
    body += tensor_json(name, "U8", "[0]", "[0,0]");
  }
  return safetensors_bytes(braces(body));
}

TEST(TensorFile, RecognizesByContent) {
  const TempDir dir;
  EXPECT_TRUE(TensorFile::open(dir.write("a.safetensors", GgufBuilder{}.build()))->is_gguf());
  EXPECT_TRUE(TensorFile::open(dir.write("a", GgufBuilder{}.build()))->is_gguf());
  EXPECT_FALSE(TensorFile::open(dir.write("b", tensors({"x"})))->is_gguf());
  EXPECT_FALSE(TensorFile::open(dir.write("c", safetensors_bytes("  {}")))->is_gguf());
}

TEST(TensorFile, SaysWhatAnUnknownFileBeginsWith) {
  const TempDir dir;
  EXPECT_EQ(bytes_error(dir, "a.bin", "PK\3\4 and more"),
            "FormatError: FILE: a zip or PyTorch archive, expected safetensors or GGUF; save the "
            "model as safetensors");
  EXPECT_EQ(bytes_error(dir, "a", ""),
            "FormatError: FILE: begins with '', expected a safetensors header or 'GGUF'; give a "
            "model's file or folder");
  EXPECT_EQ(
      bytes_error(dir, "a", "#!/bin/sh\nexit 0\n"),
      "FormatError: FILE: begins with '#!/bin/sh\\x0aexit 0', expected a safetensors header or "
      "'GGUF'; give a model's file or folder");
}

TEST(TensorFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.at("m.gguf").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", dir.at("link.gguf"));
  EXPECT_EQ(open_error(dir.at("m.gguf")),
            "FormatError: FILE: not a regular file; give a file's path");
  EXPECT_EQ(open_error(dir.at("link.gguf")), "FormatError: FILE: no such file; check the path");
  EXPECT_EQ(open_error(dir.at("none")), "FormatError: FILE: no such file; check the path");
}

TEST(TensorFile, AFolderIsOpenedByItsModel) {
  const TempDir dir;
  dir.write("model.safetensors", tensors({"x"}));
  const auto source = TensorFile::open(dir.path());
  EXPECT_EQ(source->path(), dir.path());
  EXPECT_NE(source->find("x"), nullptr);
}

TEST(TensorFile, FindAndRequireLookByName) {
  const TempDir dir;
  const auto source = TensorFile::open(
      dir.write("m.safetensors", tensors({"model.norm.weight", "model.layers.0.q.weight",
                                          "lm_head.weight", "model.layers.1.q.weight"})));
  EXPECT_EQ(source->find("nothing"), nullptr);
  EXPECT_EQ(source->find("lm_head.weight"), &source->require("lm_head.weight"));
  EXPECT_EQ(replaced(error_text([&] { source->require("model.layers.2.q.weight"); }),
                     source->path(), "FILE"),
            "FormatError: FILE: missing tensor 'model.layers.2.q.weight'; near names: "
            "'model.layers.0.q.weight', 'model.layers.1.q.weight', 'model.norm.weight'; check that "
            "it is the right model");
}

TEST(TensorFile, AnEmptyFileHasNoNearNames) {
  const TempDir dir;
  const auto source = TensorFile::open(dir.write("m.safetensors", tensors({})));
  EXPECT_EQ(replaced(error_text([&] { source->require("x"); }), source->path(), "FILE"),
            "FormatError: FILE: missing tensor 'x'; near names: none; check that it is the right "
            "model");
}

}  // namespace
}  // namespace weft::io
