// The commands that pages show in blocks of sh run as they stand there, one block after another in
// one folder, and print what the block of text behind them says.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/core/error.h"

namespace weft::cli {
namespace {

struct Block {
  std::string language;
  std::string text;
};

std::vector<Block> blocks_of(const std::string& page) {
  std::ifstream in(WEFT_SOURCE_DIR "/docs/" + page);
  std::vector<Block> blocks;
  bool is_inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      is_inside = !is_inside;
      if (is_inside) blocks.push_back({line.substr(3), ""});
    } else if (is_inside) {
      blocks.back().text += line + "\n";
    }
  }
  return blocks;
}

test::CommandResult run_block(const std::string& folder, const std::string& text) {
  const std::string script =
      core::join("set -e; PATH=", WEFT_BINARY_DIR, ":$PATH; cd ", folder, "\n", text);
  return test::run_command({"bash", "-c", script});
}

TEST(PageCommands, OfShardInfoRunAndPrintWhatThePageShows) {
  const testing::TempDir dir;
  std::filesystem::create_directory_symlink(WEFT_SOURCE_DIR "/tests", dir.at("tests"));
  std::string printed;
  size_t num_commands = 0, num_outputs = 0;
  for (const Block& block : blocks_of("shard_info.md")) {
    SCOPED_TRACE(block.text);
    if (block.language == "text") {
      EXPECT_EQ(printed, block.text);
      ++num_outputs;
      continue;
    }
    ASSERT_EQ(block.language, "sh");
    const test::CommandResult result = run_block(dir.path(), block.text);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    printed = result.out;
    ++num_commands;
  }
  EXPECT_GE(num_commands, 6U);
  EXPECT_GE(num_outputs, 3U);
}

}  // namespace
}  // namespace weft::cli
