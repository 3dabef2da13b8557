// weft generate --adapter and its kind: adapters beside frozen weights give what the fused model
// does.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "weft/core/files/file.h"
#include "weft/io/tensor_file.h"
#include "weft/train/checkpoint/folder.h"

namespace weft::cli {
namespace {

using testing::TempDir;
using Strings = std::vector<std::string>;

std::string common_lines(const std::string& run, const std::string& text) {
  return "batch.sequences = 4\nbatch.sequence_length = 32\nlog.tensorboard = false\n"
         "schedule.name = \"constant\"\ndata.train = [\"" +
         text + "\"]\ncheckpoint.folder = \"" + run + "\"\n";
}

// A tiny model, dir/base, and adapters of it that change what it says, dir/<run>.
class Tuned {
 public:
  explicit Tuned(const std::string& more = "") {
    const std::string config =
        dir_.write("base.toml",
                   "model.hidden_size = 64\nmodel.num_layers = 2\nmodel.num_heads = 4\n"
                   "model.num_kv_heads = 2\nmodel.intermediate_size = 128\nmodel.tokenizer = \"" +
                       std::string(kByteTokenizer) + "\"\noptimizer.lr = 5e-3\ntrain.steps = 4\n" +
                       common_lines(dir_.at("full"), kConstitution));
    expect_success(weft({"train", config}));
    expect_success(weft({"convert", dir_.at("full"), base()}));
    // A text of other letters, so that what the adapters say differs.
    std::string letters;
    for (int i = 0; i < 1000; ++i) letters += "xyzzy ";
    const std::string other = dir_.write("other.txt", letters);
    const std::string lora = dir_.write(
        "lora.toml",
        "model.from = \"" + base() +
            "\"\ntrain.steps = 12\noptimizer.lr = 3e-2\nlora.rank = 4\nlora.targets = [\"q_proj\", "
            "\"v_proj\", \"o_proj\", \"up_proj\", \"down_proj\"]\n" +
            common_lines(run(), other) + more);
    expect_success(weft({"lora", lora, "--tp", "2"}));
    expect_success(weft({"fuse", run(), fused()}));
  }

  const TempDir& dir() const { return dir_; }
  std::string base() const { return dir_.at("base"); }
  std::string run() const { return dir_.at("run"); }
  std::string fused() const { return dir_.at("fused"); }

 private:
  TempDir dir_;
};

nlohmann::json greedy_tokens(const Strings& args) {
  return weft_json(joined({"generate", "-p", "We the People", "-n", "16", "--json", "--ignore-eos"},
                          args))
      .at("tokens");
}

TEST(AdapterFlag, GivesTheTokensOfTheFusedModel) {
  const Tuned tuned;
  const auto expected = greedy_tokens({"--model", tuned.fused()});
  ASSERT_EQ(expected.size(), 16U);
  EXPECT_NE(greedy_tokens({"--model", tuned.base()}), expected);
  for (const char* tp : {"1", "2"}) {
    EXPECT_EQ(greedy_tokens({"--model", tuned.base(), "--adapter", tuned.run(), "--tp", tp}),
              expected)
        << "tp " << tp;
  }
  const std::string peft = tuned.dir().at("peft");
  expect_success(weft({"convert", tuned.run(), peft, "--peft"}));
  EXPECT_EQ(greedy_tokens({"--model", tuned.base(), "--adapter", peft, "--tp", "2"}), expected);
}

// The run's own base is the default; it is quantized as it was in training.
TEST(AdapterFlag, FindsTheBaseOfARunAndQuantizesItAsTheRunDid) {
  const Tuned tuned("lora.quantize_bits = 4\n");
  const auto expected = greedy_tokens({"--model", tuned.fused()});
  for (const char* tp : {"1", "2"}) {
    const auto result =
        test::run_command({kWeft, "generate", "-p", "We the People", "-n", "16", "--json",
                           "--ignore-eos", "--adapter", tuned.run(), "--tp", tp});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out).at("tokens"), expected) << "tp " << tp;
  }
}

TEST(AdapterFlag, HoldsForTheVerbsThatReadAModel) {
  const Tuned tuned;
  const auto loss_of = [&](const Strings& args) {
    return weft_json(
               joined({"perplexity", "--file", kConstitution, "--json", "--ctx-size", "32"}, args))
        .at("mean_loss")
        .get<double>();
  };
  const double expected = loss_of({"--model", tuned.fused()});
  EXPECT_GT(std::abs(loss_of({"--model", tuned.base()}) - expected), 1e-2);
  EXPECT_NEAR(loss_of({"--model", tuned.base(), "--adapter", tuned.run(), "--tp", "2"}), expected,
              1e-4);
  expect_success(weft({"logits", "--model", tuned.base(), "--adapter", tuned.run(), "--tokens",
                       "1,2,3", "--out", tuned.dir().at("logits.safetensors")}));
}

// One byte of one of the ranks' files, which nothing but its hash can tell.
void damage(const Tuned& tuned, const std::string& run, const std::string& file) {
  const std::string path = train::find_latest(tuned.dir().at(run)).value() + "/" + file;
  std::string bytes = core::read_text_file(path, 1 << 30);
  bytes.back() ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(AdapterFlag, TellsDamagedCheckpoints) {
  const Tuned tuned;
  damage(tuned, "run", "rank-00001.safetensors");
  damage(tuned, "full", "rank-00000.safetensors");
  const std::string out = tuned.dir().at("out");
  for (const Strings& args :
       {Strings{"convert", tuned.dir().at("full"), out},
        {"convert", tuned.run(), out, "--peft"},
        {"fuse", tuned.run(), out},
        {"generate", "--model", tuned.base(), "--adapter", tuned.run(), "-p", "x"},
        {"generate", "--model", tuned.base(), "--adapter", tuned.run(), "-p", "x", "--tp", "2"}}) {
    const auto result = weft(args);
    EXPECT_EQ(result.status, 3) << result.err;
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(".safetensors: its bytes are not those that were saved (hash); take "
                              "another checkpoint"),
              std::string::npos)
        << result.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

// SmolLM2's head is its embedding: a folder has no place for a head of its own.
TEST(FuseVerb, RefusesAnAdapterOfOneUseOfASharedMatrix) {
  const TempDir dir;
  const std::string text = dir.write("text.txt", std::string(500, 'a'));
  const std::string config =
      dir.write("lora.toml", "train.steps = 1\nlora.rank = 2\nlora.targets = [\"lm_head\"]\n" +
                                 common_lines(dir.at("run"), text));
  expect_success(weft({"lora", config}));
  const auto refusal = weft({"fuse", dir.at("run"), dir.at("out")});
  EXPECT_EQ(refusal.status, 2);
  EXPECT_TRUE(refusal.err.ends_with(
      ": adapts the head alone of a model that has one matrix for embedding and head, expected "
      "both or neither; leave the adapters beside the model (--adapter)\n"))
      << refusal.err;
}

// From the configuration alone: no text is tokenized and no folder of a run is made.
TEST(LoraVerb, RefusesExactTrainingBeforeItReadsData) {
  const TempDir dir;
  const std::string text = dir.write("text.txt", "a");
  const std::string config = dir.write(
      "lora.toml", "train.steps = 1\ntrain.exact = true\n" + common_lines(dir.at("run"), text));
  const auto refusal = weft({"lora", config});
  EXPECT_EQ(refusal.status, 2);
  EXPECT_EQ(refusal.err, "weft: ConfigError: " + config +
                             ":2:15: train.exact: expected false where adapters are trained, got "
                             "true; leave it out\n");
  EXPECT_FALSE(std::filesystem::exists(dir.at("run")));
  const auto unknown = weft({"lora", config, "--exact"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_EQ(unknown.err.rfind("weft: ConfigError: lora: unexpected argument '--exact'", 0), 0U)
      << unknown.err;
}

void expect_adapter_refused(const Strings& args, int status, const std::string& part) {
  for (const char* tp : {"1", "2"}) {
    const auto result = weft(joined(args, {"-p", "x", "--tp", tp}));
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
}

TEST(AdapterFlag, RefusesWhatIsNoAdapterOfTheModelInOneLine) {
  const Tuned tuned;
  const std::string empty = tuned.dir().at("empty");
  std::filesystem::create_directory(empty);
  expect_adapter_refused(
      {"generate", "--adapter", empty}, 2,
      "--adapter: '" + empty +
          "': expected a run of weft lora, one of its checkpoints, or a folder of peft "
          "(adapter_config.json and adapter_model.safetensors)");
  expect_adapter_refused({"generate", "--model", tuned.base(), "--adapter", tuned.dir().at("full")},
                         2, "has no adapters, expected a checkpoint of weft lora");
  // The model of set-up has 30 layers of width 576.
  expect_adapter_refused(
      {"generate", "--model", kModel, "--adapter", tuned.run()}, 2,
      ": model.layers.0.mlp.down_proj: A [4, 128] and B [64, 4], expected [r, 1536] and "
      "[576, r] for '");
  const std::string table = tuned.dir().at("table");
  expect_success(
      weft({"lora", tuned.dir().write("table.toml", "model.from = \"" + tuned.base() +
                                                        "\"\ntrain.steps = 1\n"
                                                        "lora.targets = [\"embed_tokens\"]\n" +
                                                        common_lines(table, kConstitution))}));
  const auto peft = weft({"convert", table, tuned.dir().at("peft"), "--peft"});
  EXPECT_EQ(peft.status, 2);
  EXPECT_NE(peft.err.find(": adapts 'model.embed_tokens', an embedding, whose adapters peft has in "
                          "another form; weft fuse writes a model with them\n"),
            std::string::npos)
      << peft.err;
  EXPECT_FALSE(std::filesystem::exists(tuned.dir().at("peft")));
  std::filesystem::remove_all(tuned.base());
  const auto moved = test::run_command({kWeft, "generate", "-p", "x", "--adapter", tuned.run()});
  EXPECT_EQ(moved.status, 2);
  EXPECT_NE(moved.err.find(": was trained beside '" + tuned.base() +
                           "', which is not there; name its place as MODEL"),
            std::string::npos)
      << moved.err;
}

}  // namespace
}  // namespace weft::cli
