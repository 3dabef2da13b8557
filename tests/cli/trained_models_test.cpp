// What `weft convert` makes of a run against what transformers says of a model of the same sizes
// (tools/peers/check_trained_models.py, which compares logits, too).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tests/cli/weft_command.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/text/byte_vocabulary.h"
#include "weft/core/files/file.h"
#include "weft/io/load_tensor.h"
#include "weft/io/tensor_file.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"

namespace weft::cli {
namespace {

using nlohmann::json;
using testing::TempDir;

json read_json(const std::string& path) { return json::parse(core::read_text_file(path, 1 << 20)); }

// One step of the model that the golden describes; the folder of what is made of it.
std::string converted(const TempDir& dir, const std::string& name) {
  const bool is_tied = name.find("_tied") != std::string::npos;
  const std::string run = dir.path() + "/" + name;
  const std::string config =
      dir.write(name + ".toml",
                "model.family = \"" + name.substr(0, name.find('_')) +
                    "\"\nmodel.hidden_size = 24\nmodel.num_layers = 2\nmodel.num_heads = 6\n"
                    "model.num_kv_heads = 2\nmodel.max_positions = 64\nmodel.rope_base = 5000\n"
                    "model.norm_eps = 1e-6\nmodel.tied = " +
                    (is_tied ? "true" : "false") +
                    "\nmodel.tokenizer = \"" WEFT_SOURCE_DIR
                    "/examples/train/bytes\"\ndata.train = [\"" WEFT_SOURCE_DIR
                    "/tests/generate/data/us_constitution.txt\"]\nbatch.sequences = 2\n"
                    "batch.sequence_length = 16\ntrain.steps = 1\ncheckpoint.folder = \"" +
                    run + "\"\n");
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"train", config}, {"convert", run, run + "/model"}}) {
    const auto result = weft(verb);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  return run + "/model";
}

void expect_config(const json& ours, const json& theirs) {
  // What the tokenizer says, and the name of "dtype" until transformers 4.56.
  const std::set<std::string> own = {"bos_token_id", "eos_token_id", "torch_dtype"};
  for (const auto& [key, value] : ours.items()) {
    if (own.contains(key)) continue;
    // Keys of other families, which transformers leaves alone.
    if (!theirs.contains(key)) {
      EXPECT_TRUE(value.is_null() || value == false || key == "attention_bias") << key;
      continue;
    }
    EXPECT_EQ(value, theirs.at(key)) << key;
  }
  for (const char* key : {"hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "rope_theta",
                          "rms_norm_eps", "tie_word_embeddings", "max_position_embeddings",
                          "hidden_act", "model_type", "architectures"}) {
    EXPECT_TRUE(ours.contains(key)) << key;
  }
  EXPECT_EQ(ours.at("torch_dtype"), theirs.at("dtype"));
  // <|im_end|> of the chats, <|endoftext|> behind texts.
  EXPECT_EQ(ours.at("eos_token_id"), (json{258, 256}));
  EXPECT_TRUE(ours.at("bos_token_id").is_null());
}

void expect_tensors(const std::string& folder, const json& theirs) {
  const auto file = io::TensorFile::open(folder);
  json ours = json::object();
  for (const io::TensorMeta& info : file->tensors()) ours[info.name] = info.shape;
  EXPECT_EQ(ours, theirs);
}

TEST(TrainedModels, HaveTheFilesOfTransformers) {
  const TempDir dir;
  const json models = read_json(WEFT_SOURCE_DIR "/tests/cli/data/transformers_models.json");
  EXPECT_EQ(models.size(), 8U);
  for (const auto& [name, golden] : models.items()) {
    SCOPED_TRACE(name);
    const std::string folder = converted(dir, name);
    expect_config(read_json(folder + "/config.json"), golden.at("config"));
    expect_tensors(folder, golden.at("tensors"));
  }
}

// A golden checkpoint with a tokenizer of small letters alone, for which its vocabulary has room.
std::string with_letters(const TempDir& dir, const std::string& family) {
  const std::string folder = dir.at(family);
  std::filesystem::copy(kFamilies + family, folder);
  text::Vocabulary letters = testing::byte_vocabulary();
  letters.tokens = {letters.tokens.begin() + 'a', letters.tokens.begin() + 'z' + 1};
  letters.kinds.resize(letters.tokens.size());
  std::ofstream(folder + "/tokenizer.json") << text::to_tokenizer_json(letters, "test");
  std::ofstream(folder + "/tokenizer_config.json")
      << text::to_tokenizer_config(letters, "{{ messages[0].content }}");
  return folder;
}

// By their names in a model of texts alone.
std::map<std::string, at::Tensor> tensors_of(const std::string& folder) {
  const auto file = io::TensorFile::open(folder);
  std::map<std::string, at::Tensor> tensors;
  for (const io::TensorMeta& info : file->tensors()) {
    const std::string name = testing::replaced(info.name, "model.language_model.", "model.");
    tensors[name] = io::load_tensor(*file, info.name, at::kFloat);
  }
  return tensors;
}

// Trained at no rate, a model is written as it was: with tensors fused and stacked as its family
// has them, and with those that don't train.
TEST(TrainedModels, HaveTheirFamiliesForm) {
  const TempDir dir;
  const std::string text = dir.write("text.txt", std::string(100, 'a') + std::string(100, 'b'));
  for (const char* family :
       {"phi3", "glm4", "gpt_oss", "gemma4", "gemma4_small", "qwen3_next", "qwen3_5"}) {
    SCOPED_TRACE(family);
    const std::string base = with_letters(dir, family);
    const std::string run = dir.at(std::string(family) + "-run");
    const std::string config =
        dir.write(std::string(family) + ".toml",
                  "model.from = \"" + base + "\"\ndata.train = [\"" + text +
                      "\"]\nbatch.sequences = 2\nbatch.sequence_length = 8\ntrain.steps = 1\n"
                      "optimizer.name = \"sgd\"\noptimizer.lr = 1e-30\nlog.tensorboard = false\n"
                      "checkpoint.folder = \"" +
                      run + "\"\n");
    expect_success(weft({"train", config}));
    expect_success(weft({"convert", run, run + "/model"}));
    const auto expected = tensors_of(base);
    auto got = tensors_of(run + "/model");
    EXPECT_EQ(got.size(), expected.size());
    for (const auto& [name, values] : expected) {
      EXPECT_TRUE(got[name].defined() && at::equal(got[name], values)) << name;
    }
  }
}

}  // namespace
}  // namespace weft::cli
