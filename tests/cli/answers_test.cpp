// Real answers of the model of set-up, against those of another implementation.
#include <gtest/gtest.h>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using test::CommandResult;
using Tokens = std::vector<int64_t>;

constexpr char kFox[] = "The quick brown fox jumps over";
constexpr char kFrance[] = "What is the capital of France?";

// Two logits that are nearer than this may change places by rounding.
constexpr double kTie = 0.05;
constexpr size_t kMinEqual = 24;

// All tokens are the reference's, unless the first other one comes late and was a near tie.
void expect_golden(const Tokens& tokens, const json& golden) {
  const auto wanted = golden.at("greedy").get<Tokens>();
  ASSERT_EQ(tokens.size(), wanted.size());
  const size_t same =
      std::mismatch(tokens.begin(), tokens.end(), wanted.begin()).first - tokens.begin();
  if (same == wanted.size()) return;
  EXPECT_LT(golden.at("gaps").at(same).get<double>(), kTie) << "token " << same;
  EXPECT_GE(same, kMinEqual);
}

class Answers : public ::testing::TestWithParam<std::string> {};

TEST_P(Answers, OfGenerateAreTheReferences) {
  for (const json& each : goldens()) {
    if (each.contains("messages")) continue;
    SCOPED_TRACE(each.at("name").get<std::string>());
    const json answer = weft_json({"generate", "-p", each.at("prompt"), "-n", "32", "--ignore-eos",
                                   "--json", "--tp", GetParam()});
    expect_golden(answer.at("tokens"), each);
    EXPECT_EQ(answer.at("prompt_tokens"), each.at("tokens").size());
    EXPECT_EQ(answer.at("finish_reason"), "length");
    EXPECT_EQ(std::to_string(answer.at("tp").get<int>()), GetParam());
  }
}

TEST_P(Answers, OfChatAreTheReferences) {
  const json answer =
      weft_json({"chat", "-p", kFrance, "-n", "32", "--ignore-eos", "--json", "--tp", GetParam()});
  expect_golden(answer.at("tokens"), golden("chat"));
  EXPECT_EQ(answer.at("prompt_tokens"), golden("chat").at("tokens").size());
}

TEST_P(Answers, OfChatEndWhereTheModelSaysSo) {
  const CommandResult result = weft({"chat", "-p", kFrance, "--tp", GetParam()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "The capital of France is Paris.\n");
}

INSTANTIATE_TEST_SUITE_P(Tp, Answers, ::testing::Values("1", "2", "3"));

TEST(AnswerJson, SaysWhatWasGeneratedAndHowLongItTook) {
  const json answer = weft_json({"chat", "-p", kFrance, "--json"});
  EXPECT_EQ(answer.at("text"), "The capital of France is Paris.");
  EXPECT_EQ(answer.at("tokens"), json({504, 3575, 282, 4649, 314, 7042, 30}));
  EXPECT_EQ(answer.at("finish_reason"), "stop");
  const json& timings = answer.at("timings");
  for (const char* key :
       {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s"}) {
    EXPECT_GT(timings.at(key).get<double>(), 0) << key;
  }
}

TEST(AnswerJson, TellsLogprobsAsTheServerDoes) {
  const json answer =
      weft_json({"chat", "-p", kFrance, "--json", "--logprobs", "2", "--speculate", "4"});
  EXPECT_FALSE(weft_json({"chat", "-p", kFrance, "--json"}).contains("logprobs"));
  EXPECT_EQ(answer.at("text"), "The capital of France is Paris.");
  ASSERT_EQ(answer.at("logprobs").size(), 7U);
  std::string text;
  for (const json& token : answer.at("logprobs")) {
    text += token.at("token");
    EXPECT_EQ(token.at("bytes").size(), token.at("token").get<std::string>().size());
    ASSERT_EQ(token.at("top_logprobs").size(), 2U);
    EXPECT_EQ(token.at("top_logprobs")[0].at("token"), token.at("token"));
    EXPECT_EQ(token.at("top_logprobs")[0].at("logprob"), token.at("logprob"));
    EXPECT_LT(token.at("top_logprobs")[1].at("logprob"), token.at("logprob"));
  }
  EXPECT_EQ(text, answer.at("text"));
}

TEST(AnswerJson, IsTheSameWithGuesses) {
  const std::string repeats = "red green blue red green blue red green blue red green";
  for (const std::string tp : {"1", "2"}) {
    const std::vector<std::string> args = {"generate",     "-p",     repeats, "-n", "24",
                                           "--ignore-eos", "--json", "--tp",  tp};
    const json plain = weft_json(args), guessed = weft_json(joined(args, {"--speculate", "8"}));
    EXPECT_EQ(guessed.at("tokens"), plain.at("tokens"));
    EXPECT_EQ(plain.at("speculation").at("guessed"), 0);
    EXPECT_GT(guessed.at("speculation").at("right").get<int>(), 8);
  }
}

TEST(AnswerText, IsStreamedAsTheJsonHasIt) {
  for (const std::string tp : {"1", "2"}) {
    const std::vector<std::string> args = {"generate", "-p", kFox, "-n", "12", "--tp", tp};
    const CommandResult streamed = weft(args);
    EXPECT_EQ(streamed.status, 0) << streamed.err;
    const json answer = weft_json(joined(args, {"--json"}));
    EXPECT_EQ(streamed.out, answer.at("text").get<std::string>() + "\n");
  }
}

TEST(AnswerText, RepeatsForASeedAndChangesWithIt) {
  const auto tokens = [](const std::string& seed, const std::string& tp) {
    return weft_json({"generate", "-p", kFox, "-n", "16", "--ignore-eos", "--temp", "1.5", "--seed",
                      seed, "--json", "--tp", tp})
        .at("tokens");
  };
  const json first = tokens("1", "2");
  EXPECT_EQ(tokens("1", "2"), first);
  EXPECT_NE(tokens("2", "2"), first);
}

TEST(AnswerText, IsDrawnAnewWithoutASeedAndSaysWhichItTook) {
  const std::vector<std::string> args = {"generate", "-p",  kFox,   "-n", "16",
                                         "--temp",   "1.5", "--tp", "2"};
  const json first = weft_json(joined(args, {"--json"})),
             second = weft_json(joined(args, {"--json"}));
  EXPECT_NE(first.at("seed"), second.at("seed"));
  const std::string seed = std::to_string(first.at("seed").get<uint64_t>());
  EXPECT_EQ(weft_json(joined(args, {"--json", "--seed", seed})).at("tokens"), first.at("tokens"));
  EXPECT_EQ(weft(joined(args, {"--seed", seed})).err, "");
  EXPECT_EQ(weft(args).err.rfind("weft: seed ", 0), 0U);
}

TEST(AnswerText, EndsBeforeAStopText) {
  for (const std::string tp : {"1", "2"}) {
    const auto ask = [&](const std::vector<std::string>& args) {
      return joined({"chat", "-p", kFrance, "--tp", tp}, args);
    };
    EXPECT_EQ(weft(ask({"--stop", " Paris"})).out, "The capital of France is\n");
    // From within one token over another into a third.
    EXPECT_EQ(weft(ask({"--stop", "nce is Par"})).out, "The capital of Fra\n");
    EXPECT_EQ(weft(ask({"--stop", "Rome", "--stop", "of"})).out, "The capital \n");
    EXPECT_EQ(weft(ask({"--stop", "Rome"})).out, "The capital of France is Paris.\n");
    const json answer = weft_json(ask({"--stop", " is", "--json"}));
    EXPECT_EQ(answer.at("text"), "The capital of France");
    EXPECT_EQ(answer.at("tokens"), json({504, 3575, 282, 4649}));
    EXPECT_EQ(answer.at("finish_reason"), "stop");
  }
}

TEST(AnswerText, ObeysPenaltiesAndBiases) {
  // " Paris" is 7042.
  const std::string biased = weft({"chat", "-p", kFrance, "--logit-bias", "7042=-100"}).out;
  EXPECT_EQ(biased.find("Paris"), std::string::npos) << biased;
  const auto mat = [](const std::vector<std::string>& more) {
    const std::string mats = "The cat sat on the mat. The cat sat on the mat. The cat";
    return weft(joined({"generate", "-n", "6", "-p", mats}, more)).out;
  };
  EXPECT_EQ(mat({}), " sat on the mat. The\n");
  const std::string penalized = mat({"--repeat-penalty", "2", "--tp", "2"});
  EXPECT_EQ(penalized.find("sat"), std::string::npos) << penalized;
  EXPECT_EQ(weft({"generate", "-p", "a", "-l", "70000+1", "--tp", "2"}).err,
            "weft: ConfigError: logit bias: token 70000, expected 0 to 49151\n");
  EXPECT_EQ(weft({"generate", "-p", "a", "-l", "1=x"}).err,
            "weft: ConfigError: --logit-bias: '1=x', expected a token's id and what is added to "
            "its logit, like 15043=-2.5\n");
  const json full =
      weft_json({"generate", "-p", "a b", "-c", "16", "-n", "-1", "--ignore-eos", "--json"});
  EXPECT_EQ(full.at("tokens").size(), 15U);
}

TEST(Prompt, ComesFromStdin) {
  const std::vector<std::string> args = {"generate", "-p", "-", "-n", "6", "--json"};
  const json wanted = golden("text_0");
  for (const std::string tp : {"1", "2"}) {
    const json answer = weft_json(joined(args, {"--tp", tp}), {.input = kFox});
    EXPECT_EQ(answer.at("prompt_tokens"), 6);
    const auto greedy = wanted.at("greedy").get<Tokens>();
    EXPECT_EQ(answer.at("tokens"), json(Tokens(greedy.begin(), greedy.begin() + 6)));
  }
}

TEST(Prompt, LosesTheLineBreakThatEndsAFileOrStdin) {
  const testing::TempDir dir;
  const std::string file = dir.write("prompt", std::string(kFox) + "\r\n");
  const std::vector<std::string> args = {"generate", "-n", "0", "--json"};
  EXPECT_EQ(weft_json(joined(args, {"-f", file})).at("prompt_tokens"), 6);
  const json piped = weft_json(joined(args, {"-p", "-"}), {.input = std::string(kFox) + "\n"});
  EXPECT_EQ(piped.at("prompt_tokens"), 6);
  const CommandResult both = weft({"generate", "-p", "x", "-f", file});
  EXPECT_EQ(both.err,
            "weft: ConfigError: --file: beside --prompt, expected one of them; leave the other "
            "out\n");
}

TEST(Prompt, SpellsNoSpecialToken) {
  const json answer = weft_json({"generate", "-p", "<|im_end|>", "-n", "0", "--json"});
  EXPECT_EQ(answer.at("prompt_tokens"), 7);
  EXPECT_EQ(answer.at("tokens"), json::array());
}

TEST(Talk, AnswersEachLineAndKnowsTheOnesBefore) {
  for (const std::string tp : {"1", "2"}) {
    const CommandResult result = weft({"chat", "-n", "24", "--tp", tp},
                                      {.input = std::string(kFrance) + "\nAnd of Italy?\n"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "The capital of France is Paris.\nThe capital of Italy is Rome.\n");
    EXPECT_EQ(result.err, "");
  }
}

TEST(Talk, HearsTheSystemPrompt) {
  const json plain = weft_json({"chat", "-p", kFrance, "--json", "-n", "1"});
  const json told = weft_json({"chat", "-p", kFrance, "--sys", "Be terse.", "--json", "-n", "1"});
  EXPECT_NE(plain.at("prompt_tokens"), told.at("prompt_tokens"));
}

}  // namespace
}  // namespace weft::cli
