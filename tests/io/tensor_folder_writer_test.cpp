#include "weft/io/tensor_folder_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "tests/io/open_error.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;
using Role = TensorFolderWriter::Role;

std::vector<OutputFile> two_files() {
  return spread_over_files({{"a", Dtype::kF32, {4}}, {"b", Dtype::kU8, {3, 2}}}, 16,
                           {{"format", "pt"}});
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(TensorFolderWriter, TakesBytesInAnyOrderFromSeveralWriters) {
  const TempDir dir;
  TensorFolderWriter first(dir.path(), two_files(), Role::kLaysOut);
  TensorFolderWriter second(dir.path(), two_files(), Role::kJoins);
  second.write("b", 4, bytes_of("ef"));
  first.write("a", bytes_of("0123456789abcdef"));
  first.write("b", 0, bytes_of("abcd"));
  second.sync();
  first.sync();
  first.verify();
  second.verify();
  const auto file = TensorFile::open(dir.path());
  EXPECT_EQ(testing::tensor_text(*file, "a"), "0123456789abcdef");
  EXPECT_EQ(testing::tensor_text(*file, "b"), "abcdef");
}

TEST(TensorFolderWriter, SeesBytesThatChangedAfterwards) {
  const TempDir dir;
  TensorFolderWriter writer(dir.path(), two_files(), Role::kLaysOut);
  writer.write("a", bytes_of("0123456789abcdef"));
  writer.write("b", bytes_of("abcdef"));
  writer.sync();
  const std::string name = "model-00001-of-00002.safetensors";
  const auto size = std::filesystem::file_size(dir.at(name));
  dir.patch(name, size - 1, 'X');
  EXPECT_EQ(replaced(error_text([&] { writer.verify(); }), dir.path(), "DIR"),
            core::join("IoError: DIR/", name, ": 16 bytes from ", size - 16,
                       " are not what was written; check the disk and write it again"));
}

TEST(TensorFolderWriter, SaysWhatAFullDiskLacks) {
  const TempDir dir;
  const std::string text = testing::in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return error_text([&] {
      TensorFolderWriter(dir.path(), spread_over_files({{"a", Dtype::kU8, {4000}}}, 9999, {}),
                         Role::kLaysOut);
    });
  });
  EXPECT_EQ(replaced(text, dir.path(), "DIR"),
            "IoError: DIR/model.safetensors: cannot write at byte 0: File too large");
  EXPECT_EQ(dir.num_files(), 0U);
}

TEST(CopyModelFiles, LeavesWeightsAndHiddenFiles) {
  const TempDir from;
  const TempDir to;
  for (const char* name :
       {"config.json", "tokenizer.json", "chat_template.jinja", "LICENSE", ".hidden",
        "model.safetensors", "model.safetensors.index.json", "old.bin", "skip.json"}) {
    from.write(name, name);
  }
  std::filesystem::create_directory(from.at("additional_chat_templates"));
  from.write("additional_chat_templates/tool.jinja", "tool");
  std::filesystem::create_directory(from.at("other"));
  copy_model_files(from.path(), to.path(), {"skip.json"});
  EXPECT_EQ(to.num_files(), 5U);
  EXPECT_EQ(to.read("LICENSE"), "LICENSE");
  EXPECT_EQ(to.read("additional_chat_templates/tool.jinja"), "tool");
}

}  // namespace
}  // namespace weft::io
