// Requests that cannot be met: one line on stderr, nothing on stdout, the exit code of the error.
#include <gtest/gtest.h>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "weft/core/error.h"
#include "weft/cuda/device.h"

namespace weft::cli {
namespace {

using test::CommandResult;
using testing::GgufBuilder;
using testing::TempDir;
using Strings = std::vector<std::string>;

void expect_refused(const Strings& args, int status, const std::string& part) {
  std::string command = "weft";
  for (const std::string& arg : args) command += " " + arg;
  SCOPED_TRACE(command);
  const CommandResult result = weft(args);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(num_lines(result.err), 1) << result.err;
  EXPECT_EQ(result.err.rfind("weft: ", 0), 0U) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

// On one rank and on two.
void expect_refused_everywhere(const Strings& args, int status, const std::string& part) {
  expect_refused(args, status, part);
  expect_refused(joined(args, {"--tp", "2"}), status, part);
}

std::string first_bytes(const std::string& path, size_t count) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

std::string gguf_with(const testing::GgufTensor& tensor) {
  GgufBuilder builder;
  builder.tensors.push_back(tensor);
  return builder.build();
}

struct Refusal {
  Strings args;
  int status;
  std::string part;
};

TEST(Refusals, OfFlagsNameTheFlag) {
  const Strings kGenerate = {"generate", "-p", "x"};
  const Refusal refusals[] = {
      {joined(kGenerate, {"--tp", "0"}), 2,
       "--tp: expected a whole number from 1 to 1024, got '0'"},
      {joined(kGenerate, {"--tp", "x"}), 2, "got 'x'"},
      {joined(kGenerate, {"--tp", "64"}), 2, "64"},
      {joined(kGenerate, {"--tp"}), 2, "--tp"},
      {joined(kGenerate, {"--threads", "0"}), 2, "--threads"},
      {joined(kGenerate, {"-n", "-2"}), 2, "got '-2'"},
      {joined(kGenerate, {"-n", "99999999999999999999"}), 2, "got '99999999999999999999'"},
      {joined(kGenerate, {"--ctx-size", "0"}), 2, "--ctx-size"},
      {joined(kGenerate, {"--top-k", "-1"}), 2, "--top-k"},
      {joined(kGenerate, {"--top-p", "1.5"}), 2, "--top-p: 1.5, expected 0 to 1"},
      {joined(kGenerate, {"--min-p", "-1"}), 2, "--min-p: -1, expected 0 to 1"},
      {joined(kGenerate, {"--temp", "nan"}), 2, "--temp: nan, expected 0 to 100"},
      {joined(kGenerate, {"--temp", "hot"}), 2, "--temp"},
      {joined(kGenerate, {"--seed", "-1"}), 2, "--seed"},
      {joined(kGenerate, {"--tem", "1"}), 2, "(did you mean '--temp'?)"},
      {joined(kGenerate, {"--elephant"}), 2, "unexpected argument '--elephant'"},
      {joined(kGenerate, {"--backend", "pigeon"}), 2, "pigeon"},
      {joined(kGenerate, {"--backend", "pigeon", "--tp", "2"}), 2, "pigeon"},
      {{"generate"}, 2, "--prompt is required"},
      {{"generate", "-p"}, 2, "--prompt"},
      {{"chat", "--json"}, 2, "--json: needs one question; give it with -p"},
      {joined(kGenerate, {"--logprobs", "2"}), 2,
       "--logprobs: without --json, which tells them; give it, too"},
      {{"bench", "-r", "0"}, 2, "--repetitions"},
      {{"bench", "-n", "1"}, 2, "--n-gen"},
      {{"bench", "--batch", ""}, 2, "--batch: '', expected numbers of sequences like 1,4,16"},
      {{"serve", "--max-slowdown", "1"}, 2, "--max-slowdown: 1, expected 1.1 to 1000, or 0"},
  };
  for (const Refusal& refusal : refusals) {
    expect_refused(refusal.args, refusal.status, refusal.part);
  }
}

TEST(Refusals, OfAGpuThatIsNotThereComeOnce) {
  expect_refused({"generate", "-p", "x", "--device", "tpu"}, 2, "--device: tpu not in {cpu,cuda}");
  expect_refused({"bench", "--device", "cuda", "--profile"}, 2,
                 "--profile: with --device cuda, expected cpu");
  expect_refused({"serve", "--device", "cuda", "--kv-cache-mb", "100"}, 2,
                 "--kv-cache-mb: with --device cuda, expected cpu");
  if (cuda::has_device()) GTEST_SKIP() << "there is a GPU";
  const std::string part = cuda::is_built()
                               ? "--device: cuda, expected an NVIDIA GPU and its driver, got "
                               : "--device: cuda, expected a build with CUDA, got one without; ";
  for (const Strings& verb : {Strings{"generate", "-p", "x"}, Strings{"chat", "-p", "x"},
                              Strings{"bench"}, Strings{"perplexity", "-f", kModel}}) {
    expect_refused_everywhere(joined(verb, {"--device", "cuda"}), 2, part);
  }
}

TEST(Refusals, OfVerbsSuggestANearOne) {
  expect_refused({"genrate"}, 2,
                 "unknown verb 'genrate' (did you mean 'generate'?); `weft help` lists the verbs");
  expect_refused({"elephant"}, 2, "unknown verb 'elephant'; `weft help`");
  expect_refused({""}, 2, "unknown verb ''");
}

TEST(Refusals, OfTokensShowThem) {
  const TempDir dir;
  const std::string out = dir.at("out.safetensors");
  for (const std::string tokens :
       {"", "1,", ",1", "1,,2", "x", "1 2", "-1", "1.5", "99999999999999999999"}) {
    expect_refused({"logits", "--tokens", tokens, "--out", out}, 2, "--tokens");
  }
  expect_refused_everywhere({"logits", "--tokens", "1,49152", "--out", out}, 2,
                            "--tokens: 49152, expected 0 to 49151");
  expect_refused({"logits", "--tokens", "1"}, 2, "--out is required");
  const Strings elsewhere = {"logits", "--tokens", "1", "--out", dir.at("no/out.safetensors")};
  expect_refused(elsewhere, 5, "no/out.safetensors: cannot create");
  EXPECT_EQ(weft(joined(elsewhere, {"--tp", "2"})).status, 5);
  EXPECT_EQ(dir.num_files(), 0U);
}

TEST(Refusals, OfPromptsComeOnce) {
  expect_refused_everywhere({"generate", "-p", ""}, 2, "prompt is empty");
  expect_refused_everywhere({"generate", "-p", "a b c d e f", "--ctx-size", "4"}, 2,
                            "6 tokens of prompt, the context holds 4");
  expect_refused_everywhere({"generate", "-p", "x", "--ctx-size", "99999"}, 2,
                            "--ctx-size: 99999, expected 1 to 8192 for this model");
}

TEST(Refusals, OfMissingFilesNameThem) {
  const TempDir dir;
  for (const Strings& verb : {Strings{"generate", "-p", "x"}, Strings{"chat", "-p", "x"},
                              Strings{"bench"}, Strings{"inspect"}}) {
    expect_refused_everywhere(joined(verb, {"-m", dir.at("none.gguf")}), 3,
                              dir.at("none.gguf") + ": no such file; check the path");
  }
  expect_refused_everywhere({"generate", "-p", "x", "-m", dir.path()}, 3, dir.path());
}

TEST(Refusals, OfBadFilesNameThem) {
  const TempDir dir;
  GgufBuilder wrong_magic;
  wrong_magic.magic = "GGUX";
  const Strings files[] = {
      {dir.write("empty.gguf", ""), "empty.gguf"},
      {dir.write("magic.gguf", wrong_magic.build()), "magic.gguf"},
      {dir.write("short.gguf", first_bytes(kModel, 1 << 20)), "short.gguf"},
      {dir.write("head.gguf", first_bytes(kModel, 8'000'000)), "head.gguf"},
      {dir.write("sizes.gguf", gguf_with({"t", {1ULL << 40, 1ULL << 40}, 0, ""})), "t"},
      {dir.write("type.gguf", gguf_with({"t", {32}, 99, std::string(128, '\0')})), "99"},
      {dir.write("bare.gguf", gguf_with({"t", {32}, 0, std::string(128, '\0')})), "bare.gguf"},
  };
  for (const Strings& file : files) {
    expect_refused_everywhere({"generate", file[0], "-p", "x"}, 3, file[1]);
  }
}

TEST(Refusals, OfLaunchSayHowToWriteIt) {
  expect_refused({"launch", "-n", "2"}, 2, "launch: no program; write weft launch -n 2 -- PROGRAM");
  expect_refused({"launch", "-n", "2", "--"}, 2, "launch: no program");
  expect_refused({"launch", "--", "true"}, 2, "--num-ranks is required");
  expect_refused({"launch", "-n", "0", "--", "true"}, 2, "--num-ranks");
  expect_refused({"launch", "-n", "2", "--port", "70000", "--", "true"}, 2, "--port");
}

TEST(Refusals, OfLaunchNameThePortThatIsUsed) {
  const UsedPort port;
  expect_refused({"launch", "-n", "2", "--port", port.text(), "--", "true"}, 5, port.text());
}

TEST(Refusals, OfRanksThatAgreeComeOnce) {
  const TempDir dir;
  const std::string bad = dir.write("bad.gguf", "GGUX");
  const CommandResult result = weft({"launch", "-n", "2", "--", kWeft, "generate", bad, "-p", "x"});
  EXPECT_EQ(result.status, 3) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(num_lines(result.err), 1) << result.err;
  EXPECT_NE(result.err.find("weft: FormatError: " + bad), std::string::npos) << result.err;
}

TEST(Refusals, OfPiecesNameMatricesThatTheyWouldCut) {
  const TempDir dir;
  for (const auto& [name, kind] :
       {std::pair{"qwen3_fp8", "F8_E4M3"}, std::pair{"qwen3_int4", "compressed-tensors' integers"},
        std::pair{"llama_int8", "compressed-tensors' integers"},
        std::pair{"qwen2_int8", "bitsandbytes"}}) {
    expect_refused({"shard", core::join(kFamilies, name), dir.at("out"), "--tp", "2"}, 2,
                   core::join(name, ": matrices of ", kind,
                              ", whose groups with a scale pieces would cut, expected plain "
                              "numbers or MLX's; `weft convert` it with `--dtype bf16` first"));
  }
  EXPECT_EQ(dir.num_files(), 0U);
}

}  // namespace
}  // namespace weft::cli
