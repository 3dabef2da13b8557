#include "weft/cli/flags.h"

#include <gtest/gtest.h>

#include "tests/cli/weft_command.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using test::CommandResult;
using testing::error_text;
using Strings = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

json generate(const Strings& args, const Variables& variables = {}) {
  return weft_json(joined({"generate", "-p", "x", "--ignore-eos", "--json"}, args),
                   {.variables = variables});
}

size_t num_tokens(const Strings& args, const Variables& variables = {}) {
  return generate(args, variables).at("tokens").size();
}

TEST(Flags, TakeWholeNumbersOnly) {
  const CLI::Validator validator = whole_number(1, 8);
  const auto refusal = [&](std::string text) { return validator(text); };
  EXPECT_EQ(refusal("8"), "");
  for (const std::string text : {"0", "9", "", "2x", "1.5", " 2", "99999999999999999999"}) {
    EXPECT_EQ(refusal(text), "expected a whole number from 1 to 8, got '" + text + "'");
  }
}

TEST(Flags, TakeNumbersOfBytes) {
  const auto bytes_of = [](const std::string& text) {
    CLI::App app("", "shard");
    OutputOptions options;
    add_output_flags(app, options);
    parse_flags(app, {"--max-shard-size", text});
    return options.max_file_bytes;
  };
  EXPECT_EQ(bytes_of("500"), 500U);
  EXPECT_EQ(bytes_of("500MB"), 500'000'000U);
  EXPECT_EQ(bytes_of("5GiB"), uint64_t{5} << 30);
  for (const std::string& text : {std::string("x"), std::string("5X"), std::string(5000, 'x')}) {
    const std::string shown = text.size() > 96 ? text.substr(0, 96) + "…" : text;
    EXPECT_EQ(error_text([&] { bytes_of(text); }),
              "ConfigError: shard: --max-shard-size: expected bytes like 500MB or 5GiB, got '" +
                  shown + "'");
  }
}

TEST(Flags, PreferTheGivenModel) { EXPECT_EQ(model_path("some.gguf"), "some.gguf"); }

TEST(Environment, SetsTheRanks) {
  EXPECT_EQ(generate({"-n", "2"}, {{"WEFT_TP", "2"}}).at("tp"), 2);
}

TEST(Environment, IsRefusedLikeAFlag) {
  const CommandResult result = weft({"generate", "-p", "x"}, {.variables = {{"WEFT_TP", "two"}}});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(num_lines(result.err), 1) << result.err;
  EXPECT_NE(result.err.find("got 'two'"), std::string::npos) << result.err;
}

// Python and others close what a program would inherit, but pass the launcher's variables on.
TEST(Environment, NamesALaunchersPageThatIsNone) {
  for (const std::string fd : {"", "x", "0", "1", "2", "77", "-1"}) {
    SCOPED_TRACE(fd);
    const Variables variables = {{"WEFT_STATUS_FD", fd}};
    const CommandResult rank = weft({"generate", "-p", "a"}, {.variables = variables});
    EXPECT_EQ(rank.status, 2);
    EXPECT_EQ(num_lines(rank.err), 1) << rank.err;
    EXPECT_NE(rank.err.find("weft: ConfigError: dist.status_page: WEFT_STATUS_FD: expected "),
              std::string::npos)
        << rank.err;
    // What needs no page says what else is wrong.
    const CommandResult alone = weft({"tokenize", "/nowhere", "-p", "a"}, {.variables = variables});
    EXPECT_EQ(alone.status, 3);
    EXPECT_EQ(alone.err, "weft: FormatError: /nowhere: no such file; check the path\n");
  }
}

TEST(Toml, IsBeatenByTheEnvironmentAndThatByAFlag) {
  const testing::TempDir dir;
  const Strings config = {"--config", dir.write("weft.toml", "max-tokens = 3\ntp = 2\n")};
  const json answer = generate(config);
  EXPECT_EQ(answer.at("tokens").size(), 3U);
  EXPECT_EQ(answer.at("tp"), 2);
  const Variables variables = {{"WEFT_MAX_TOKENS", "4"}, {"WEFT_TP", "1"}};
  EXPECT_EQ(num_tokens(config, variables), 4U);
  EXPECT_EQ(num_tokens(joined(config, {"-n", "5"}), variables), 5U);
}

TEST(Toml, GivesTextNumbersAndSwitches) {
  const testing::TempDir dir;
  const std::string config = dir.write(
      "weft.toml", "json = true\nignore-eos = true\ntemp = 0.5\nmax-tokens = 2\nmodel = '" +
                       std::string(kModel) + "'\n");
  const CommandResult result =
      test::run_command(weft_command({"generate", "-p", "x", "--config", config}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("tokens").size(), 2U);
}

struct TomlRefusal {
  std::string text;
  std::string message;
};

TEST(Toml, IsRefusedWithItsLine) {
  const testing::TempDir dir;
  const TomlRefusal refusals[] = {
      {"\ntpp = 2\n", ":2: tpp: unknown key (did you mean '--tp'?); keys are long flag names"},
      {"elephant = 2\n", ":1: elephant: unknown key; keys are long flag names"},
      {"tp = [1, 2]\n", ":1: tp: expected a string, a number, true or false"},
      {"\n\ntp = = 2\n", ":3: "},
      {"tp = 0\n", "expected a whole number from 1 to"},
  };
  for (const TomlRefusal& refusal : refusals) {
    const std::string path = dir.write("bad.toml", refusal.text);
    const CommandResult result = weft({"generate", "-p", "x", "--config", path});
    EXPECT_EQ(result.status, 2) << refusal.text;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(refusal.message), std::string::npos) << result.err;
  }
  const CommandResult missing = weft({"generate", "-p", "x", "--config", dir.at("none.toml")});
  EXPECT_EQ(missing.status, 3);
  EXPECT_EQ(num_lines(missing.err), 1) << missing.err;
}

}  // namespace
}  // namespace weft::cli
