#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"

namespace weft::cli {
namespace {

// A cache as Hugging Face's tools leave it: snapshots by commit, branches that name one.
TEST(HubCache, HasModelsByTheirNames) {
  const testing::TempDir dir;
  const std::string repository = dir.at("hub/models--org--small-GGUF");
  std::filesystem::create_directories(repository + "/refs");
  std::filesystem::create_directories(repository + "/snapshots/abc123");
  dir.write("hub/models--org--small-GGUF/refs/main", "abc123");
  std::filesystem::create_symlink(kModel, repository + "/snapshots/abc123/small-Q4_1.gguf");
  const auto tokens_of = [&](const std::string& name) {
    return weft({"tokenize", "-m", name, "-p", "Hello", "--json"},
                {.variables = {{"HF_HOME", dir.path()}}});
  };
  const std::string wanted = weft({"tokenize", "-p", "Hello", "--json"}).out;
  for (const char* name :
       {"org/small-GGUF", "org/small-GGUF@main", "org/small-GGUF@abc123", "org/small-GGUF:q4_1"}) {
    EXPECT_EQ(tokens_of(name).out, wanted) << name;
  }
  std::filesystem::create_symlink(kModel, repository + "/snapshots/abc123/small-Q8_0.gguf");
  EXPECT_EQ(tokens_of("org/small-GGUF:Q4_1").out, wanted);
  const test::CommandResult several = tokens_of("org/small-GGUF");
  EXPECT_EQ(several.status, 2);
  EXPECT_EQ(several.err,
            "weft: ConfigError: MODEL: 'org/small-GGUF': expected one GGUF file or "
            "config.json in " +
                repository +
                "/snapshots/abc123, got small-Q4_1.gguf, small-Q8_0.gguf; name a "
                "file, or one of several as ORG/NAME:TAG\n");
  EXPECT_EQ(tokens_of("org/other").status, 3);
}

}  // namespace
}  // namespace weft::cli
