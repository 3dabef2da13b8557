// weft and weft-tensors: which of them does what, and what each of them loads.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/cli/verbs.h"

namespace weft::cli {
namespace {

using test::CommandResult;
using testing::TempDir;

constexpr char kTensors[] = WEFT_BINARY_DIR "/weft-tensors";

// The shared libraries that the loader would map for a program, a line each.
std::string libraries_of(const std::string& program) {
  const CommandResult result =
      test::run_command({program}, {.variables = {{"LD_TRACE_LOADED_OBJECTS", "1"}}});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

// weft in a folder of its own, without weft-tensors beside it.
std::string lone_weft(const TempDir& dir) {
  std::filesystem::copy_file(kWeft, dir.at("weft"));
  return dir.at("weft");
}

TEST(Programs, WeftLoadsNoLibtorch) {
  const std::string libraries = libraries_of(kWeft);
  EXPECT_NE(libraries.find("libstdc++"), std::string::npos) << libraries;
  for (const char* library : {"torch", "libc10", "libgomp", "libmpi", "libcuda", "libnccl"}) {
    EXPECT_EQ(libraries.find(library), std::string::npos) << libraries;
  }
  EXPECT_NE(libraries_of(kTensors).find("libtorch_cpu"), std::string::npos);
}

TEST(Programs, WeftAloneShowsEveryVerbsFlags) {
  const TempDir dir;
  const std::string program = lone_weft(dir);
  for (const Verb& verb : verbs()) {
    const CommandResult result = test::run_command({program, verb.name, "--help"});
    EXPECT_EQ(result.status, 0) << verb.name << result.err;
    EXPECT_NE(result.out.find("--config"), std::string::npos) << verb.name;
  }
  const CommandResult refused = test::run_command({program, "chat", "--elephant", "--help"});
  EXPECT_EQ(refused.status, 0) << refused.err;
}

TEST(Programs, WeftAloneFindsTokensAndPlans) {
  const TempDir dir;
  const std::string program = lone_weft(dir);
  const nlohmann::json& wanted = golden("text_0");
  const std::string prompt = wanted.at("prompt");
  const CommandResult tokens =
      test::run_command({program, "tokenize", "--json", "-m", kModel, "-p", prompt});
  EXPECT_EQ(tokens.status, 0) << tokens.err;
  EXPECT_EQ(nlohmann::json::parse(tokens.out).at("tokens"), wanted.at("tokens"));
  const std::string config =
      dir.write("run.toml", std::string("[model]\nfrom = \"") + kModel +
                                "\"\n[batch]\nsequences = 2\nsequence_length = 64\n"
                                "[train]\nsteps = 1\n");
  const CommandResult plan = test::run_command({program, "plan", config});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out, "");
}

TEST(Programs, WeftSaysThatItsOtherPartIsMissing) {
  const TempDir dir;
  const CommandResult result =
      test::run_command({lone_weft(dir), "generate", "-m", kModel, "-p", "x"});
  EXPECT_EQ(result.status, 5);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err.rfind("weft: IoError: " + dir.at("weft-tensors") + ": cannot start", 0), 0U)
      << result.err;
  EXPECT_EQ(num_lines(result.err), 1) << result.err;
}

TEST(Programs, TensorsRunsEveryVerb) {
  for (const Verb& verb : verbs()) {
    const CommandResult result = test::run_command({kTensors, verb.name, "--help"});
    EXPECT_EQ(result.status, 0) << verb.name << result.err;
    EXPECT_EQ(result.out, test::run_command({kWeft, verb.name, "--help"}).out);
  }
}

TEST(Programs, HelpOfALaunchedProgramIsNotLaunchsOwn) {
  const CommandResult result =
      weft({"launch", "-n", "1", "--", "sh", "-c", "echo \"$1\"", "sh", "--help"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "[0] --help\n");
}

}  // namespace
}  // namespace weft::cli
