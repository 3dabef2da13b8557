// weft chat on a terminal, as a person uses it.
#include <gtest/gtest.h>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"

namespace weft::cli {
namespace {

class TalkOnTerminal : public ::testing::TestWithParam<std::string> {};

TEST_P(TalkOnTerminal, EditsPastesStopsForgetsAndSaves) {
  const testing::TempDir dir;
  const auto result = test::run_command({"python3", WEFT_SOURCE_DIR "/tests/cli/terminal/talk.py",
                                         kWeft, kModel, GetParam(), dir.path()},
                                        {.timeout = std::chrono::minutes(5)});
  EXPECT_EQ(result.out, "talked\n") << result.err;
}

INSTANTIATE_TEST_SUITE_P(Tp, TalkOnTerminal, ::testing::Values("1", "2"));

TEST(TalkFromPipe, ReadsPlainLinesAndGoesOnAfterEmptyOnes) {
  const test::CommandResult result =
      weft({"chat", "-n", "24"},
           {.input = "What is the capital of France?\n\n/undo\nWhat is the capital of France?"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "The capital of France is Paris.\nThe capital of France is Paris.\n");
  EXPECT_EQ(result.err, "weft chat: forgotten: What is the capital of France?\n");
}

}  // namespace
}  // namespace weft::cli
