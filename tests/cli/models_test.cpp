// The verbs that write models: convert, quantize, shard.
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "tests/text/byte_tokenizer.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using test::CommandResult;
using testing::TempDir;
using Strings = std::vector<std::string>;

constexpr char kMixed[] = WEFT_SOURCE_DIR "/tests/models/data/mlx/mixed_override_f32";
constexpr char kQuantized[] = WEFT_SOURCE_DIR "/tests/models/data/mlx/affine_b4_g64_f32";
constexpr char kTokens[] = "1,2,3,200,17,5,90,11";
// "Once upon a time, there was a" for the model of set-up.
constexpr char kTextTokens[] = "6403,1980,253,655,28,665,436,253";

void expect_done(const Strings& args) {
  test::CommandOptions options;
  options.timeout = std::chrono::minutes(10);
  const CommandResult result = weft(args, options);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "");
}

std::vector<float> read_logits(const std::string& path) {
  const auto file = io::TensorFile::open(path);
  const std::string bytes = testing::tensor_text(*file, "logits");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> logits_of_model(const TempDir& dir, const std::string& model,
                                   const std::string& tokens = kTokens) {
  expect_done({"logits", model, "--tokens", tokens, "--out", dir.at("logits"), "--force"});
  return read_logits(dir.at("logits"));
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  float most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

// Every tensor of `a` is in `b`, with the same bytes.
void expect_same_tensors(const std::string& a, const std::string& b) {
  const auto first = io::TensorFile::open(a);
  const auto second = io::TensorFile::open(b);
  EXPECT_EQ(first->tensors().size(), second->tensors().size());
  for (const io::TensorMeta& tensor : first->tensors()) {
    EXPECT_EQ(second->require(tensor.name).shape, tensor.shape) << tensor.name;
    EXPECT_EQ(testing::tensor_text(*second, tensor.name), testing::tensor_text(*first, tensor.name))
        << tensor.name;
  }
}

nlohmann::json config_of(const std::string& folder) {
  std::ifstream in(folder + "/config.json");
  return nlohmann::json::parse(in);
}

TEST(ShardVerb, CutsAndJoinsAgain) {
  const TempDir dir;
  for (const std::string model : {kPlain, kQuantized}) {
    SCOPED_TRACE(model);
    for (const std::string n : {"2", "3"}) {
      expect_done({"shard", model, dir.at("cut"), "--tp", n, "--force"});
      EXPECT_FALSE(fs::exists(dir.at("cut/model.safetensors")));
      expect_done({"shard", dir.at("cut"), dir.at("four"), "--tp", "4", "--force"});
      expect_done({"shard", dir.at("four"), dir.at("back"), "--tp", n, "--force"});
      EXPECT_TRUE(files_of(dir.at("cut")) == files_of(dir.at("back")));
      expect_done({"shard", dir.at("four"), dir.at("whole"), "--tp", "1", "--force"});
      expect_same_tensors(model, dir.at("whole"));
      EXPECT_EQ(
          largest_difference(logits_of_model(dir, dir.at("whole")), logits_of_model(dir, model)),
          0);
    }
  }
}

TEST(ShardVerb, EmitsRulesThatItTakes) {
  const TempDir dir;
  const CommandResult info = weft({"shard", "--emit-info", kPlain});
  ASSERT_EQ(info.status, 0) << info.err;
  EXPECT_NE(info.out.find("\"weft.shard_info\""), std::string::npos);
  const std::string path = dir.write("info.json", info.out);
  expect_done({"shard", kPlain, dir.at("a"), "--tp", "2"});
  expect_done({"shard", kPlain, dir.at("b"), "--tp", "2", "--shard-info", path});
  EXPECT_TRUE(files_of(dir.at("a")) == files_of(dir.at("b")));
}

TEST(QuantizeVerb, WritesWhatMlxWrites) {
  const TempDir dir;
  expect_done({"quantize", kPlain, dir.at("q"), "--bits", "4", "--group-size", "64"});
  expect_same_tensors(kQuantized, dir.at("q"));
  const nlohmann::json expected = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  EXPECT_EQ(config_of(dir.at("q")).at("quantization"), expected);
  EXPECT_EQ(config_of(dir.at("q")).at("quantization_config"), expected);
  EXPECT_EQ(largest_difference(logits_of_model(dir, dir.at("q")), logits_of_model(dir, kQuantized)),
            0);
}

// MLX has quantized one layer of the mixed fixture, which is the plain one, to mxfp4.
TEST(QuantizeVerb, WritesMlxsSmallFloats) {
  const TempDir dir;
  expect_done({"quantize", kPlain, dir.at("q"), "--mode", "mxfp4", "--tp", "2"});
  const nlohmann::json expected = {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
  EXPECT_EQ(config_of(dir.at("q")).at("quantization"), expected);
  const auto ours = io::TensorFile::open(dir.at("q")), mlx = io::TensorFile::open(kMixed);
  for (const char* part : {"weight", "scales"}) {
    const std::string name = core::join("model.layers.1.mlp.gate_proj.", part);
    EXPECT_EQ(testing::tensor_text(*ours, name), testing::tensor_text(*mlx, name)) << name;
  }
  for (const char* mode : {"mxfp8", "nvfp4"}) {
    expect_done({"quantize", kPlain, dir.at(mode), "--mode", mode});
    EXPECT_EQ(config_of(dir.at(mode)).at("quantization").at("mode"), mode);
    // Quantized again as it is: nothing changes.
    expect_done({"convert", dir.at(mode), dir.at(core::join(mode, "2"))});
    EXPECT_EQ(largest_difference(logits_of_model(dir, dir.at(mode)),
                                 logits_of_model(dir, dir.at(core::join(mode, "2")))),
              0);
  }
}

TEST(QuantizeVerb, WritesTheSameFilesOnAnyNumberOfRanks) {
  const TempDir dir;
  expect_done({"quantize", kPlain, dir.at("one"), "--bits", "3", "--group-size", "32"});
  for (const std::string tp : {"2", "3"}) {
    expect_done({"quantize", kPlain, dir.at(tp), "--bits", "3", "--group-size", "32", "--tp", tp});
    EXPECT_TRUE(files_of(dir.at("one")) == files_of(dir.at(tp)));
  }
}

// MLX has quantized the same model.
TEST(QuantizeVerb, WritesExpertsStackedAsMlxDoes) {
  const TempDir dir;
  const std::string plain = core::join(kFamilies, "mixtral_plain");
  const std::string mlx = core::join(kFamilies, "mixtral_mlx");
  expect_done({"convert", plain, dir.at("f32"), "--dtype", "f32"});
  const Strings bits = {"--bits", "4", "--group-size", "32"};
  expect_done(joined({"quantize", dir.at("f32"), dir.at("one")}, bits));
  expect_same_tensors(mlx, dir.at("one"));
  EXPECT_EQ(config_of(dir.at("one")).at("quantization"),
            nlohmann::json({{"group_size", 32}, {"bits", 4}, {"mode", "affine"}}));
  const std::string tokens = "1,2,3,17,5,60,11";
  EXPECT_EQ(largest_difference(logits_of_model(dir, dir.at("one"), tokens),
                               logits_of_model(dir, mlx, tokens)),
            0);
  for (const std::string tp : {"2", "3"}) {
    expect_done(joined({"quantize", dir.at("f32"), dir.at(tp), "--tp", tp}, bits));
    EXPECT_TRUE(files_of(dir.at("one")) == files_of(dir.at(tp)));
  }
}

TEST(ConvertVerb, TurnsBlocksIntoPartsOfTheSameValues) {
  const TempDir dir;
  expect_done({"convert", kModel, dir.at("mlx")});
  EXPECT_EQ(largest_difference(logits_of_model(dir, dir.at("mlx"), kTextTokens),
                               logits_of_model(dir, kModel, kTextTokens)),
            0);
  const nlohmann::json config = config_of(dir.at("mlx"));
  EXPECT_EQ(config.at("quantization").at("bits"), 4);
  EXPECT_EQ(config.at("quantization").at("model.embed_tokens").at("bits"), 8);
  const std::string text = "Hello, 123 <|im_end|> ü 🙂\n\n\tx";
  EXPECT_EQ(weft_json({"tokenize", "-m", dir.at("mlx"), "-p", text, "--json"}),
            weft_json({"tokenize", "-p", text, "--json"}));
  const Strings chat = {"chat", "-p", "What is the capital of France?", "-n", "8", "--json"};
  EXPECT_EQ(weft_json(joined(chat, {"-m", dir.at("mlx")})).at("text"), weft_json(chat).at("text"));
}

TEST(ConvertVerb, TurnsBlocksIntoPlainNumbers) {
  const TempDir dir;
  expect_done({"convert", kModel, dir.at("f32"), "--dtype", "f32", "--max-shard-size", "200MB",
               "--tp", "2"});
  EXPECT_TRUE(fs::exists(dir.at("f32/model-00003-of-00003.safetensors")));
  EXPECT_FALSE(config_of(dir.at("f32")).contains("quantization"));
  EXPECT_EQ(config_of(dir.at("f32")).at("torch_dtype"), "float32");
  EXPECT_LT(largest_difference(logits_of_model(dir, dir.at("f32"), kTextTokens),
                               logits_of_model(dir, kModel, kTextTokens)),
            1e-4);
}

TEST(ConvertVerb, ChangesTheTypeOfAFolder) {
  const TempDir dir;
  expect_done({"convert", kPlain, dir.at("bf16"), "--dtype", "bf16"});
  expect_done({"convert", dir.at("bf16"), dir.at("f32"), "--dtype", "f32"});
  expect_done({"convert", dir.at("f32"), dir.at("again"), "--dtype", "bf16"});
  expect_same_tensors(dir.at("bf16"), dir.at("again"));
  expect_done({"convert", kPlain, dir.at("same")});
  expect_same_tensors(kPlain, dir.at("same"));
}

// Zero points of several rows share a word.
TEST(ConvertVerb, WritesIntegersOfCompressedTensorsOnAnyNumberOfRanks) {
  const TempDir dir;
  for (const std::string tp : {"1", "3"}) {
    expect_done({"convert", core::join(kFamilies, "qwen3_int4"), dir.at(tp), "--tp", tp});
  }
  EXPECT_TRUE(files_of(dir.at("1")) == files_of(dir.at("3")));
}

// A model with a tokenizer of the 256 bytes.
std::string with_tokenizer(const TempDir& dir, const std::string& model = kPlain) {
  const std::string folder = dir.at("hf");
  fs::copy(model, folder);
  testing::add_byte_tokenizer(folder);
  return folder;
}

TEST(ConvertVerb, WritesGgufAndBack) {
  const TempDir dir;
  const std::string folder = with_tokenizer(dir);
  const std::string gguf = dir.at("model.gguf");
  expect_done({"convert", folder, gguf});
  EXPECT_EQ(largest_difference(logits_of_model(dir, gguf), logits_of_model(dir, folder)), 0);
  EXPECT_EQ(weft({"convert", folder, gguf}).status, 2);
  expect_done({"convert", gguf, dir.at("back")});
  expect_same_tensors(folder, dir.at("back"));
  const Strings question = {"chat", "-p", "some words", "-n", "5", "--json"};
  const auto answer = weft_json(joined(question, {"-m", folder}));
  EXPECT_EQ(weft_json(joined(question, {"-m", gguf})).at("tokens"), answer.at("tokens"));
  EXPECT_EQ(weft_json(joined(question, {"-m", dir.at("back")})).at("tokens"), answer.at("tokens"));
  const nlohmann::json config = config_of(dir.at("back"));
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "num_key_value_heads", "intermediate_size", "tie_word_embeddings"}) {
    EXPECT_EQ(config.at(key), config_of(folder).at(key)) << key;
  }
  expect_done({"convert", folder, dir.at("half.gguf"), "--dtype", "f16"});
  EXPECT_LT(
      largest_difference(logits_of_model(dir, dir.at("half.gguf")), logits_of_model(dir, folder)),
      0.05);
}

TEST(ConvertVerb, TakesExpertsToGgufAndBack) {
  const TempDir dir;
  const std::string folder = with_tokenizer(dir, core::join(kFamilies, "qwen2_moe"));
  const std::string tokens = "1,2,3,17,5,60,11";
  expect_done({"convert", folder, dir.at("model.gguf")});
  EXPECT_EQ(largest_difference(logits_of_model(dir, dir.at("model.gguf"), tokens),
                               logits_of_model(dir, folder, tokens)),
            0);
  expect_done({"convert", dir.at("model.gguf"), dir.at("back"), "--tp", "3", "--dtype", "bf16"});
  expect_same_tensors(folder, dir.at("back"));
  EXPECT_EQ(config_of(dir.at("back")).at("model_type"), "qwen2_moe");
}

TEST(LogitsVerb, TakesWholeExpertsOnEachRank) {
  const TempDir dir;
  const std::string model = core::join(kFamilies, "mixtral"), tokens = "1,2,3,17,5,60,11";
  const auto whole = logits_of_model(dir, model, tokens);
  expect_done({"logits", model, "--tokens", tokens, "--out", dir.at("three"), "--tp", "3",
               "--expert-split", "experts"});
  EXPECT_LT(largest_difference(read_logits(dir.at("three")), whole), 1e-4);
}

TEST(LogitsVerb, DealsOutQueryHeadsOrWholeKvHeads) {
  const TempDir dir;
  const std::string model = core::join(kFamilies, "llama_bias"), tokens = "1,2,3,17,5,60,11";
  const auto whole = logits_of_model(dir, model, tokens);
  std::vector<std::vector<float>> both;
  for (const std::string split : {"kv", "even"}) {
    expect_done({"logits", model, "--tokens", tokens, "--out", dir.at(split), "--tp", "2",
                 "--head-split", split});
    both.push_back(read_logits(dir.at(split)));
    EXPECT_LT(largest_difference(both.back(), whole), 1e-4) << split;
  }
  EXPECT_NE(both[0], both[1]);
}

struct WriterRefusal {
  Strings args;
  int status;
  std::string part;
};

void expect_writer_refused(const WriterRefusal& refusal) {
  const CommandResult result = weft(refusal.args);
  EXPECT_EQ(result.status, refusal.status) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(num_lines(result.err), 1) << result.err;
  EXPECT_NE(result.err.find(refusal.part), std::string::npos) << result.err;
}

TEST(ModelWriters, RefuseInOneLineAndLeaveNothing) {
  const TempDir dir;
  fs::create_directory(dir.at("model"));
  dir.write("model/config.json", "mine");
  fs::create_directory(dir.at("home"));
  dir.write("home/letter", "dear");
  const std::string out = dir.at("out");
  for (const Strings& verb : {Strings{"convert"}, Strings{"quantize"}, Strings{"shard"}}) {
    const Strings tp = verb[0] == "shard" ? Strings{"--tp", "2"} : Strings{};
    const auto with = [&](const Strings& args) { return joined(joined(verb, args), tp); };
    const std::string none = dir.at("none");
    expect_writer_refused({with({none, out}), 3, none + ": no such file; check the path"});
    expect_writer_refused({with({kPlain, dir.at("model")}), 2,
                           "model: is there already; choose another path or give --force"});
    expect_writer_refused(
        {with({kPlain, dir.at("home"), "--force"}), 2,
         "home: holds no config.json, so it is not replaced; choose another path"});
    expect_writer_refused({with({kPlain, dir.at("no/out")}), 5, "no/out: cannot make "});
    expect_writer_refused({joined(verb, {kPlain, out, "--tp", "0"}), 2,
                           "--tp: expected a whole number from 1 to 1024, got '0'"});
    expect_writer_refused({joined(verb, {kPlain}), 2, " is required"});
  }
  expect_writer_refused(
      {{"quantize", kPlain, out, "--bits", "7"},
       2,
       "--bits, --group-size: bits, expected one of 2, 3, 4, 5, 6, 8, got 7; choose one "
       "of these"});
  expect_writer_refused(
      {{"quantize", kPlain, out, "--mode", "mxfp4", "--bits", "8"},
       2,
       "--bits, --group-size: mxfp4, expected 4 bits in groups of 32, got 8 bits in "
       "groups of 32; leave both out, or use mode affine"});
  expect_writer_refused({{"quantize", kPlain, out, "--group-size", "48"},
                         2,
                         "--group-size: 48, expected 32, 64 or 128"});
  expect_writer_refused(
      {{"quantize", kPlain, out, "--mode", "best"},
       2,
       "--mode: mode, expected one of affine, mxfp4, mxfp8, nvfp4, got 'best'; name one "
       "of these"});
  expect_writer_refused(
      {{"convert", kPlain, out, "--dtype", "f8"}, 2, "--dtype: 'f8', expected f32, f16 or bf16"});
  expect_writer_refused({{"shard", kModel, out, "--tp", "2"},
                         2,
                         "a GGUF file, expected safetensors; `weft convert` it first"});
  expect_writer_refused({{"shard", kPlain, out, "--tp", "64"}, 2, "64"});
  expect_writer_refused({{"logits", kPlain, "--tokens", "1", "--out", out, "--expert-split", "all"},
                         2,
                         "--expert-split: expected ffn or experts, got 'all'"});
  expect_writer_refused(
      {{"inspect", kPlain, "--head-split", "q"}, 2, "--head-split: expected even or kv, got 'q'"});
  EXPECT_EQ(dir.read("model/config.json"), "mine");
  EXPECT_EQ(dir.num_files(), 2U);
}

TEST(ModelWriters, SayWhatAFullDiskLacks) {
  const TempDir dir;
  // More than what ranks share in memory, less than the model.
  constexpr int kKilobytes = 60'000;
  for (const std::string verb : {"convert", "quantize --bits 8 --tp 2"}) {
    const CommandResult result =
        test::run_command({"bash", "-c",
                           core::join("ulimit -f ", kKilobytes, "; exec ", kWeft, " ", verb, " -m ",
                                      kModel, " -o ", dir.at("out"))},
                          {});
    EXPECT_EQ(result.status, 5) << result.err;
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    EXPECT_NE(result.err.find("IoError: " + dir.at("out.tmp-")), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("/model.safetensors: cannot write at byte 0: File too large"),
              std::string::npos)
        << result.err;
    EXPECT_EQ(dir.num_files(), 0U) << verb;
  }
}

TEST(ModelWriters, LeaveNothingAtTheNameWhenKilled) {
  const TempDir dir;
  for (const char* verb : {"quantize", "convert"}) {
    test::BackgroundCommand command(weft_command({verb, kModel, dir.at("out"), "--tp", "2"}));
    // Until the folder beside it has come.
    for (int i = 0; i < 600 && dir.num_files() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_FALSE(fs::exists(dir.at("out")));
    ::kill(-command.pid(), SIGKILL);
    command.finish();
    EXPECT_FALSE(fs::exists(dir.at("out")));
    for (const auto& entry : fs::directory_iterator(dir.path())) fs::remove_all(entry.path());
  }
}

}  // namespace
}  // namespace weft::cli
