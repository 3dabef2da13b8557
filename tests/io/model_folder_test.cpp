#include <gtest/gtest.h>

#include <string>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/io/sources.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

// What is opened of a folder with these files.
std::string found(const std::vector<std::string>& names) {
  const TempDir dir;
  for (const std::string& name : names) dir.write(name, "");
  std::string file;
  const std::string error = error_text([&] { file = find_model_file(dir.path()); });
  return replaced(file.empty() ? error : file, dir.path(), "DIR");
}

TEST(ModelFolder, PrefersTheUsualNames) {
  EXPECT_EQ(found({"model.safetensors.index.json", "model.safetensors", "x.gguf"}),
            "DIR/model.safetensors.index.json");
  EXPECT_EQ(found({"model.safetensors", "adapter.safetensors", "x.gguf"}), "DIR/model.safetensors");
  EXPECT_EQ(found({"model.safetensors", "ndarray-cache.json"}), "DIR/model.safetensors");
  EXPECT_EQ(found({"tensor-cache.json", "ndarray-cache.json", "x.gguf"}), "DIR/tensor-cache.json");
  EXPECT_EQ(found({"ndarray-cache-b16.json", "ndarray-cache.json", "params_shard_0.bin"}),
            "DIR/ndarray-cache.json");
  EXPECT_EQ(found({"x.safetensors.index.json", "x-1.safetensors", "x-2.safetensors"}),
            "DIR/x.safetensors.index.json");
}

TEST(ModelFolder, TakesTheOnlyFile) {
  EXPECT_EQ(found({"x.safetensors", "config.json"}), "DIR/x.safetensors");
  EXPECT_EQ(found({"x.gguf", "config.json"}), "DIR/x.gguf");
  EXPECT_EQ(found({"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}), "DIR/m-00001-of-00002.gguf");
}

TEST(ModelFolder, RefusesNoneOrAChoice) {
  EXPECT_EQ(found({"config.json", "pytorch_model.bin"}),
            "FormatError: DIR: no model file, expected model.safetensors, its index.json, one "
            "*.safetensors or one *.gguf; give a model's folder");
  EXPECT_EQ(found({"a.gguf", "b.gguf"}),
            "FormatError: DIR: 2 files end in .gguf, expected one; give the path of one of them");
  EXPECT_EQ(found({"a.safetensors", "b.safetensors", "c.gguf"}),
            "FormatError: DIR: 2 files end in .safetensors, expected one; give the path of one of "
            "them");
}

}  // namespace
}  // namespace weft::io
