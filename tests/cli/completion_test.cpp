#include <gtest/gtest.h>

#include "tests/cli/weft_command.h"
#include "weft/cli/verbs.h"

namespace weft::cli {
namespace {

std::string completion_for(const std::string& format) {
  const test::CommandResult result = weft({"completion", format});
  EXPECT_EQ(result.status, 0) << result.err;
  return result.out;
}

// What bash offers for the last of these words.
std::string offered(const std::string& words, int position) {
  const std::string script = "eval \"$(\"$0\" completion bash)\"; COMP_WORDS=(" + words +
                             "); COMP_CWORD=" + std::to_string(position) +
                             "; _weft; printf '%s\\n' \"${COMPREPLY[@]}\"";
  return test::run_command({"bash", "-c", script, kWeft}).out;
}

TEST(Completion, OffersVerbsAndFlagsInBash) {
  EXPECT_EQ(offered("weft tok", 1), "tokenize\n");
  EXPECT_EQ(offered("weft help gen", 2), "generate\n");
  EXPECT_EQ(offered("weft chat --min", 2), "--min-p\n");
}

TEST(Completion, OfZshAndTheManualPageNameEveryVerb) {
  const std::string zsh = completion_for("zsh"), page = completion_for("man");
  EXPECT_TRUE(zsh.starts_with("#compdef weft\n"));
  EXPECT_TRUE(page.starts_with(".TH WEFT 1 "));
  for (const Verb& verb : verbs()) {
    EXPECT_NE(zsh.find("'" + verb.name + ":"), std::string::npos) << verb.name;
    EXPECT_NE(page.find(".SS weft " + verb.name + " "), std::string::npos) << verb.name;
  }
}

TEST(Help, OfAVerbBeginsWithTheProgramAndFitsAPage) {
  const std::string help = weft({"help", "chat"}).out;
  EXPECT_TRUE(help.starts_with("Usage: weft chat [OPTION…] [MODEL]\n"));
  EXPECT_LT(help.find("--prompt"), help.find("--temp"));
  EXPECT_LT(help.find("--temp"), help.find("--tp"));
  EXPECT_EQ(help, weft({"chat", "--help"}).out);
  for (const Verb& verb : verbs()) {
    std::istringstream lines(weft({"help", verb.name}).out);
    for (std::string line; std::getline(lines, line);) {
      const auto width = std::count_if(line.begin(), line.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      });
      EXPECT_LE(width, 100) << line;
    }
  }
}

}  // namespace
}  // namespace weft::cli
