// weft imatrix and weft quantize to a GGUF file, as they are typed.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"
#include "tests/models/quantize/wide_folder.h"
#include "weft/models/quantize/importance.h"

namespace weft::cli {
namespace {

using test::CommandResult;
using testing::TempDir;
using Strings = std::vector<std::string>;

class QuantizedFile : public ::testing::Test {
 protected:
  QuantizedFile() : folder_(test::wide_folder(dir_)) {
    std::ifstream in(kConstitution, std::ios::binary);
    std::string text(4000, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text_ = dir_.write("text", text);
  }

  // What stands on stderr.
  std::string done(const Strings& args) const {
    const CommandResult result = weft(args);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  }

  std::string refused(const Strings& args) const {
    const CommandResult result = weft(args);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    return testing::replaced(result.err, dir_.path(), "DIR");
  }

  TempDir dir_;
  std::string folder_, text_;
};

TEST_F(QuantizedFile, ByAnImatrixGivesTheSameBytesOnAnyNumberOfRanks) {
  std::vector<models::Importance> importances;
  for (const std::string tp : {"1", "2", "3"}) {
    const std::string out = dir_.at("imatrix-" + tp);
    done({"imatrix", folder_, "-f", text_, "-o", out, "-c", "60", "--chunks", "2", "--tp", tp});
    importances.push_back(models::read_importance(out));
    EXPECT_EQ(importances.back().num_chunks, 2);
    EXPECT_EQ(importances.back().texts, Strings{text_});
  }
  EXPECT_EQ(importances[0].tensors.size(), 8U);
  for (const auto& [name, first] : importances[0].tensors) {
    for (const models::Importance& other : importances) {
      const at::Tensor squares = other.tensors.at(name).squares;
      EXPECT_TRUE(at::allclose(squares, first.squares, 1e-4, 1e-6)) << name;
    }
  }
  const Strings quantize = {"quantize", folder_, dir_.at("1.gguf"), "--imatrix",
                            dir_.at("imatrix-1")};
  EXPECT_EQ(done(quantize), "5.185 bits per weight\n");
  const auto file = io::TensorFile::open(dir_.at("1.gguf"));
  EXPECT_EQ(file->require("blk.0.ffn_up.weight").dtype, core::Dtype::kQ4K);
  EXPECT_EQ(file->require("output.weight").dtype, core::Dtype::kQ6K);
  EXPECT_EQ(std::get<uint64_t>(file->metadata().at("general.file_type")), 15U);
  EXPECT_EQ(std::get<std::string>(file->metadata().at("quantize.imatrix.file")),
            dir_.at("imatrix-1"));
  for (const std::string tp : {"2", "3"}) {
    Strings args = quantize;
    args[2] = dir_.at(tp + ".gguf");
    EXPECT_EQ(done(joined(args, {"--tp", tp})), "5.185 bits per weight\n");
    EXPECT_TRUE(dir_.read(tp + ".gguf") == dir_.read("1.gguf")) << tp;
  }
}

TEST_F(QuantizedFile, ByProductsIsTheSameOnAnyNumberOfRanks) {
  const std::string products = dir_.at("products");
  done(
      {"imatrix", folder_, "-f", text_, "-o", products, "-c", "60", "--chunks", "2", "--products"});
  EXPECT_TRUE(models::read_importance(products).has_products("blk.0.attn_v.weight"));
  for (const std::string tp : {"1", "2"}) {
    done({"quantize", folder_, dir_.at(tp + ".gguf"), "--imatrix", products, "--bits-per-weight",
          "4.5", "--tp", tp});
  }
  EXPECT_TRUE(dir_.read("2.gguf") == dir_.read("1.gguf"));
  std::string bits;
  for (const std::string tp : {"1", "2"}) {
    bits = done({"quantize", folder_, dir_.at(tp), "--method", "awq+gptq", "--imatrix", products,
                 "--bits-per-weight", "4.5", "--tp", tp});
    EXPECT_EQ(bits, "4.467 bits per weight\n");
  }
  for (const char* file : {"/model.safetensors", "/config.json"}) {
    EXPECT_TRUE(dir_.read(core::join("2", file)) == dir_.read(core::join("1", file))) << file;
  }
}

// Both programs' folders by each method, which weft reads on any number of ranks.
TEST_F(QuantizedFile, IsAFolderWithTheSameBytesOnAnyNumberOfRanks) {
  const std::string products = dir_.at("products");
  done(
      {"imatrix", folder_, "-f", text_, "-o", products, "-c", "60", "--chunks", "2", "--products"});
  const std::vector<Strings> forms = {
      {"--method", "gptq", "--imatrix", products},
      {"--bits", "8", "--group-size", "32", "--method", "awq", "--imatrix", products},
      {"--format", "compressed-tensors"},
      {"--format", "compressed-tensors", "--asymmetric", "--group-size", "128", "--method",
       "awq+gptq", "--imatrix", products}};
  const Strings measure = {"perplexity", "--file", text_, "--json", "--ctx-size", "60"};
  const double plain = weft_json(joined(measure, {"-m", folder_})).at("perplexity").get<double>();
  for (size_t i = 0; i < forms.size(); ++i) {
    const std::string name = "form-" + std::to_string(i);
    double of_one = plain;
    for (const std::string tp : {"1", "3"}) {
      const std::string out = name + "-of-" + tp;
      EXPECT_EQ(done(joined({"quantize", folder_, dir_.at(out), "--tp", tp}, forms[i])), "");
      for (const char* file : {"/model.safetensors", "/config.json"}) {
        EXPECT_TRUE(dir_.read(out + file) == dir_.read(name + "-of-1" + file)) << out << file;
      }
      const json result = weft_json(joined(measure, {"-m", dir_.at(name + "-of-1"), "--tp", tp}));
      const double measured = result.at("perplexity").get<double>();
      if (tp == "1") of_one = measured;
      EXPECT_NEAR(measured, plain, 0.05 * plain) << out;
      EXPECT_NEAR(measured, of_one, 1e-4 * of_one) << out;
    }
  }
}

TEST_F(QuantizedFile, OfPlainNumbersIsReadAgainWithEachFlagsTypes) {
  done({"quantize", folder_, dir_.at("mixed.gguf"), "--type", "iq4_xs", "--tensor-type",
        "ffn_(up|gate)=Q3_K", "--tensor-type", "attn_k=f16", "--output-tensor-type", "Q8_0",
        "--token-embedding-type", "q5_K"});
  const auto file = io::TensorFile::open(dir_.at("mixed.gguf"));
  const std::vector<std::pair<const char*, core::Dtype>> expected = {
      {"blk.0.ffn_up.weight", core::Dtype::kQ3K},   {"blk.0.ffn_gate.weight", core::Dtype::kQ3K},
      {"blk.0.attn_k.weight", core::Dtype::kF16},   {"blk.0.attn_q.weight", core::Dtype::kIQ4XS},
      {"output.weight", core::Dtype::kQ8_0},        {"token_embd.weight", core::Dtype::kQ5K},
      {"blk.0.attn_norm.weight", core::Dtype::kF32}};
  for (const auto& [name, type] : expected) EXPECT_EQ(file->require(name).dtype, type) << name;
  const Strings measure = {"perplexity", "--file", text_, "--json", "--ctx-size", "60"};
  const auto of = [&](const std::string& model) {
    return weft_json(joined(measure, {"-m", model})).at("perplexity").get<double>();
  };
  EXPECT_NEAR(of(dir_.at("mixed.gguf")), of(folder_), 0.05 * of(folder_));
}

TEST_F(QuantizedFile, RefusesBitsThatAFolderCannotChoose) {
  const std::vector<std::pair<Strings, std::string>> refusals = {
      {{dir_.at("out"), "--bits-per-weight", "4.5", "--format", "compressed-tensors"},
       "--bits-per-weight: 4.5, expected --format mlx or a name that ends in .gguf, got "
       "compressed-tensors\n"},
      {{dir_.at("out"), "--bits-per-weight", "4.5", "--mode", "mxfp4"},
       "--bits-per-weight: 4.5, expected --mode affine, got mxfp4\n"},
      {{dir_.at("out"), "--bits-per-weight", "4.5", "--bits", "4"},
       "--bits: 4, expected none beside --bits-per-weight, which chooses them\n"}};
  for (const auto& [args, message] : refusals) {
    EXPECT_EQ(refused(joined({"quantize", folder_}, args)), "weft: ConfigError: " + message);
  }
}

TEST_F(QuantizedFile, RefusesFlagsThatDoNotFitTheirForm) {
  const std::string gguf = dir_.at("out.gguf");
  const std::string types =
      "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, F16, BF16, "
      "F32\n";
  const std::vector<std::pair<Strings, std::string>> refusals = {
      {{gguf, "--bits", "4"},
       "--bits: OUT is 'DIR/out.gguf', expected a folder: the blocks of GGUF follow from --type; "
       "leave it out\n"},
      {{dir_.at("out"), "--type", "Q4_0"},
       "--type: OUT is 'DIR/out', expected a name that ends in .gguf; leave it out\n"},
      {{gguf, "--method", "gptq"},
       "--method: OUT is 'DIR/out.gguf', expected a folder: the blocks of GGUF follow from --type; "
       "leave it out\n"},
      {{dir_.at("out"), "--imatrix", "x"},
       "--imatrix: OUT is 'DIR/out', a folder, expected --method gptq, awq or awq+gptq beside "
       "it\n"},
      {{dir_.at("out"), "--method", "gptq"},
       "--method: gptq, expected --imatrix beside it; make the file with weft imatrix "
       "--products\n"},
      {{dir_.at("out"), "--method", "awq", "--imatrix", "x", "--mode", "mxfp4"},
       "--method: awq, expected round with --mode mxfp4\n"},
      {{dir_.at("out"), "--format", "ct"}, "--format: 'ct', expected mlx or compressed-tensors\n"},
      {{dir_.at("out"), "--asymmetric"},
       "--asymmetric: expected --format compressed-tensors; MLX's have offsets anyway\n"},
      {{dir_.at("out"), "--format", "compressed-tensors", "--bits", "3"},
       "--bits: 3, expected 4 or 8 with --format compressed-tensors\n"},
      {{gguf, "--max-shard-size", "1GB"},
       "--max-shard-size: OUT is 'DIR/out.gguf', expected a folder: GGUF is one file; leave it "
       "out\n"},
      {{gguf, "--type", "Q4"},
       "--type: 'Q4', expected one of Q4_0, Q4_1, Q8_0, Q5_0, Q5_1, Q2_K, Q3_K_S, Q3_K_M, Q3_K_L, "
       "Q4_K_S, Q4_K_M, Q5_K_S, Q5_K_M, Q6_K, IQ4_NL, IQ4_XS\n"},
      {{gguf, "--tensor-type", "attn_v"},
       "--tensor-type: 'attn_v', expected NAME=TYPE, e.g. attn_v=Q6_K\n"},
      {{gguf, "--tensor-type", "attn_v=Q9"}, "--tensor-type: 'Q9', expected one of " + types},
      {{gguf, "--tensor-type", "(=Q6_K", "--tp", "2"},
       "--tensor-type: '(', expected a regular expression; write \\ before its own signs\n"},
      {{gguf, "--bits-per-weight", "2", "--tp", "2"},
       "models.quantize: 2 bits per weight, expected at least 2.65626, which the smallest types "
       "take\n"}};
  for (const auto& [args, message] : refusals) {
    EXPECT_EQ(refused(joined({"quantize", folder_}, args)), "weft: ConfigError: " + message);
  }
  const Strings imatrix = {"imatrix", folder_, "-f", text_, "-o", gguf};
  EXPECT_EQ(refused(joined(imatrix, {"-c", "65"})),
            "weft: ConfigError: --ctx-size: 65, expected 4 to 64 for this model\n");
  EXPECT_EQ(refused(joined(imatrix, {"--products", "--tp", "2"})),
            "weft: ConfigError: --products: with --tp 2, expected 1: no rank has all inputs of a "
            "matrix cut by columns\n");
  EXPECT_EQ(refused({"quantize", kModel, gguf}),
            std::string("weft: ConfigError: ") + kModel +
                ": a GGUF file already; convert it to a folder first\n");
  EXPECT_FALSE(std::filesystem::exists(gguf));
}

TEST_F(QuantizedFile, TakesNoFlagsThatWouldChangeNothing) {
  const std::string gguf = dir_.at("out.gguf");
  EXPECT_EQ(
      refused({"convert", folder_, gguf, "--max-shard-size", "1GB"}),
      "weft: ConfigError: --max-shard-size: OUT is 'DIR/out.gguf', expected a folder: GGUF is "
      "one file; leave it out\n");
  for (const char* verb : {"convert", "quantize"}) {
    for (const char* flag :
         {"--shard-info", "--functions", "--activations", "--expert-split", "--head-split"}) {
      const std::string message = refused({verb, folder_, gguf, flag, "int8"});
      EXPECT_NE(message.find(core::join(verb, ": unexpected argument '", flag)), std::string::npos)
          << message;
    }
  }
}

}  // namespace
}  // namespace weft::cli
