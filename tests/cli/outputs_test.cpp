// What verbs write never takes the place of what they read, nor of anything that they can't make
// again.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <map>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/text/byte_tokenizer.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using test::CommandResult;
using testing::TempDir;
using Strings = std::vector<std::string>;

// Every file below the folder, with its bytes.
std::map<std::string, std::string> all_files(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

// A model, another in a folder of it, and other names for its parts.
class Outputs : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(kPlain, model_);
    fs::copy(kPlain, inner_);
    fs::create_directory_symlink(model_, dir_.at("link"));
    fs::create_hard_link(weights_, dir_.at("hard"));
    before_ = all_files(dir_.path());
  }

  void expect_refused(const Strings& args, const std::string& part) {
    const CommandResult result = weft(args);
    SCOPED_TRACE(nlohmann::json(args).dump());
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_TRUE(all_files(dir_.path()) == before_);
  }

  TempDir dir_;
  std::string model_ = dir_.at("model"), inner_ = dir_.at("model/inner");
  std::string weights_ = dir_.at("model/model.safetensors");
  std::map<std::string, std::string> before_;
};

TEST_F(Outputs, AreNoFilesThatAreRead) {
  for (const Strings& verb :
       {Strings{"logits", "--tokens", "1"}, Strings{"logits", "--tokens", "1", "--tp", "2"}}) {
    const auto with = [&](const std::string& model, const std::string& out) {
      return joined(verb, {"-m", model, "-o", out, "--force"});
    };
    expect_refused(with(weights_, weights_), ": is what is read, so it is not written; choose ");
    expect_refused(with(weights_, dir_.at("link/model.safetensors")), ": is what is read");
    expect_refused(with(weights_, dir_.at("hard")), ": is what is read");
    expect_refused(with(model_, weights_), ": lies in " + model_ + ", which is read; choose ");
    expect_refused(with(model_, dir_.at("link/new")), ": lies in " + model_ + ", which is read");
    expect_refused(with(model_, dir_.at("hard")), ": lies in " + model_ + ", which is read");
  }
  expect_refused({"convert", model_, dir_.at("model/new.gguf")}, ": lies in " + model_);
}

TEST_F(Outputs, AreNoFoldersThatAreRead) {
  for (const Strings& verb : {Strings{"convert"}, Strings{"quantize"}, Strings{"shard"}}) {
    const auto with = [&](const std::string& model, const std::string& out) {
      const Strings tp = verb[0] == "shard" ? Strings{"--tp", "2"} : Strings{};
      return joined(joined(verb, {model, out, "--force"}), tp);
    };
    expect_refused(with(model_, model_), ": is what is read");
    expect_refused(with(model_, dir_.at("link/.")), ": is what is read");
    expect_refused(with(weights_, model_), model_ + ": holds " + weights_ + ", which is read");
    expect_refused(with(inner_, model_), model_ + ": holds " + inner_ + ", which is read");
    expect_refused(with(kPlain, model_),
                   model_ + ": holds 'inner', which replacing the folder would remove");
  }
}

TEST_F(Outputs, ReplaceFilesWhenTheyAreToldTo) {
  const std::string out = dir_.write("out", "mine");
  before_ = all_files(dir_.path());
  const Strings logits = {"logits", model_, "--tokens", "1,2", "-o", out};
  expect_refused(logits, out + ": is there already; choose another path or give --force");
  EXPECT_EQ(weft(joined(logits, {"--force"})).status, 0);
  EXPECT_NE(dir_.read("out"), "mine");
}

TEST_F(Outputs, ReplaceFoldersOfModels) {
  for (const std::string out : {"cut", "cut/", "cut/.", "cut/./"}) {
    const CommandResult result = weft({"shard", kPlain, dir_.at(out), "--tp", "2", "--force"});
    EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_TRUE(fs::exists(dir_.at("cut/config.json")));
  dir_.write("cut/tiktoken.model", "AA== 0\n");
  const CommandResult again = weft({"shard", kPlain, dir_.at("cut"), "--tp", "2", "--force"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_FALSE(fs::exists(dir_.at("cut/tiktoken.model")));
}

TEST_F(Outputs, AreNoFilesOfFlags) {
  const std::string flags = dir_.write("flags.toml", "tokens = \"1,2\"\n");
  fs::create_hard_link(flags, dir_.at("flags"));
  before_ = all_files(dir_.path());
  for (const std::string& out : {flags, dir_.at("flags"), dir_.at("model/../flags.toml")}) {
    expect_refused({"logits", model_, "--config", flags, "-o", out, "--force"},
                   "--out: " + out + " is the file of --config; choose another path");
  }
}

TEST_F(Outputs, AreNoFilesOfFunctions) {
  const std::string functions = dir_.write("functions.json", "{}");
  before_ = all_files(dir_.path());
  for (const Strings& verb :
       {Strings{"logits", model_, "--tokens", "1"}, Strings{"batch", model_, "-i", weights_}}) {
    expect_refused(joined(verb, {"-o", functions, "--force", "--shard-info", weights_,
                                 "--functions", functions}),
                   functions + ": is what is read, so it is not written; choose another path");
  }
}

TEST_F(Outputs, OfPlotAreNothingElseOfTheRun) {
  const std::string metrics =
      dir_.write("metrics.jsonl",
                 "{\"grad_norm\":1,\"loss\":2,\"lr\":0,\"rss_bytes\":1,\"seconds\":1,\"step\":1,"
                 "\"tokens\":1,\"tokens_per_s\":1}\n");
  dir_.write("loss.svg", "<svg/>");
  before_ = all_files(dir_.path());
  for (const std::string& run : {dir_.path(), metrics}) {
    expect_refused({"plot", run, "-o", weights_, "--force"},
                   weights_ + ": lies in " + dir_.path() + ", which is read; choose another path");
  }
  const CommandResult result = weft({"plot", dir_.path(), "-o", dir_.at("loss.svg"), "--force"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(Outputs, OfPlotAreNoMetrics) {
  const std::string line = R"({"step":1,"loss":2})";
  dir_.write("metrics.jsonl", line + "\n");
  before_ = all_files(dir_.path());
  expect_refused({"plot", dir_.path(), "-o", dir_.at("metrics.jsonl"), "--force"},
                 ": is what is read");
  expect_refused({"plot", dir_.path(), "-o", dir_.at("hard")}, "hard: is there already");
}

TEST(GgufWriters, NameWhatLlamaCppDoesNotRead) {
  const TempDir dir;
  const std::string folder = dir.at("hf");
  fs::copy(WEFT_SOURCE_DIR "/tests/models/data/families/mistral", folder);
  testing::add_byte_tokenizer(folder);
  for (const char* verb : {"convert", "quantize"}) {
    const CommandResult result = weft({verb, folder, dir.at(core::join(verb, ".gguf"))});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find("attention.sliding_window: llama.cpp does not read this for 'llama'"),
              std::string::npos)
        << result.err;
  }
}

}  // namespace
}  // namespace weft::cli
