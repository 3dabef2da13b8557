// The examples prove themselves; here they do it on several numbers of ranks.
#include <gtest/gtest.h>

#include "tests/support/run_command.h"

namespace weft {
namespace {

using test::CommandResult;
using test::run_command;

CommandResult run_example(const std::string& name, int n) {
  const std::string build = WEFT_BINARY_DIR;
  return run_command(
      {build + "/weft", "launch", "-n", std::to_string(n), "--", build + "/examples/" + name});
}

TEST(Examples, LlamaTpTrainsLikeTheWholeBlock) {
  for (const int n : {1, 2, 4}) {
    const CommandResult result = run_example("llama_tp", n);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("step 19"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find(std::to_string(n) + " ranks: largest difference"), std::string::npos)
        << result.out;
  }
}

TEST(Examples, LlamaTpNamesTheRanksThatWork) {
  const CommandResult result = run_example("llama_tp", 10);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(result.err.find("shard.shard_heads: 9 heads cannot be cut over 10 ranks; use 1 to 9 "
                            "ranks"),
            std::string::npos)
      << result.err;
}

TEST(Examples, ChainsEqualOneProcess) {
  for (const int n : {1, 3}) {
    const CommandResult result = run_example("chains", n);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("cut layers, gradient of x"), std::string::npos) << result.out;
  }
}

TEST(Examples, MlxPagesTwoLayersHaveThePagesShapes) {
  for (const int n : {1, 2}) {
    const CommandResult result = run_example("mlx_two_layers", n);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    const std::string shapes =
        n == 1 ? "l1_out (4, 2), l2_out (4, 2)" : "l1_out (4, 1), l2_out (4, 2)";
    EXPECT_NE(result.out.find(shapes), std::string::npos) << result.out;
  }
}

TEST(Examples, MlxPagesLlamaGeneratesAsTheWhole) {
  for (const int n : {1, 2, 4}) {
    const CommandResult result = run_example("mlx_llama", n);
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_NE(result.out.find(std::to_string(n) + " ranks: the whole's tokens"), std::string::npos)
        << result.out;
  }
  const CommandResult refused = run_example("mlx_llama", 3);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_NE(refused.err.find("3 ranks, expected a divisor of the 4 kv heads"), std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace weft
