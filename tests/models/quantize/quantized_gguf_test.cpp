// Folders to quantized GGUF files: the types of llama.cpp's mixes, the same bytes on any number of
// ranks, and values near the folder's.
#include "weft/models/quantize/quantized_gguf.h"

#include <ATen/ATen.h>

#include "tests/core/error_text.h"
#include "tests/models/quantize/wide_folder.h"
#include "tests/support/run_ranks.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {
namespace {

using dist::Group;
using testing::error_text;
using testing::TempDir;

// Of every matrix of the wide model.
Importance random_importance(const io::TensorFile& plain) {
  at::manual_seed(9);
  Importance importance;
  for (const io::TensorMeta& tensor : plain.tensors()) {
    if (tensor.shape.size() < 2) continue;
    const int64_t in = tensor.shape.back();
    const at::Tensor x = at::randn({64, in}) * at::rand({in}).exp();
    importance.tensors[tensor.name] = {x.square().sum(0, true), at::full({1}, 64.0F),
                                       x.t().matmul(x)};
  }
  return importance;
}

class QuantizedGguf : public ::testing::Test {
 protected:
  QuantizedGguf() {
    const Group alone;
    export_gguf(*folder_, std::nullopt, dir_.at("plain.gguf"), [](uint64_t, uint64_t) {});
    squares_ = random_importance(*io::TensorFile::open(dir_.at("plain.gguf")));
    products_ = squares_;
    for (auto& [name, statistics] : squares_.tensors) statistics.products = at::Tensor();
  }

  static QuantizationOptions options(const char* mix, const Importance& importance = {}) {
    QuantizationOptions options;
    options.mix = &find_mix(mix, "test");
    options.importance = importance;
    return options;
  }

  // The file's name, written by `group`.
  std::string write(const QuantizationOptions& options, const Group& group,
                    const std::string& name) {
    QuantizedForm form(options, group);
    export_gguf(*folder_, form, group, dir_.at(name), [](uint64_t, uint64_t) {});
    bits_ = form.bits_per_weight();
    notes_ = form.notes();
    return name;
  }

  // A file's matrices are near the folder's.
  void expect_near(const std::string& name, double most) const {
    const auto matrices = [](const std::string& path) {
      std::map<std::string, at::Tensor> found;
      const LoadedModel loaded = load_model(*io::TensorFile::open(path), Group());
      for (const nn::HeldLinear& held : nn::find_linears(*loaded.model)) {
        found[held.path] = held.holder->inner()->dense_weight().to(at::kFloat);
      }
      return found;
    };
    const auto expected = matrices(dir_.at("wide"));
    for (const auto& [path, w] : matrices(dir_.at(name))) {
      const at::Tensor error = w - expected.at(path);
      EXPECT_LT((error.norm() / expected.at(path).norm()).item<double>(), most) << path;
      EXPECT_GT(error.abs().max().item<double>(), 0) << path;
    }
  }

  TempDir dir_;
  std::shared_ptr<const io::TensorFile> folder_ = io::TensorFile::open(test::wide_folder(dir_));
  Importance squares_, products_;
  double bits_ = 0;
  std::vector<std::string> notes_;
};

TEST_F(QuantizedGguf, HasTheSameBytesOnAnyNumberOfRanks) {
  // Of normal numbers, of which Q8_0 keeps 0.5 % off and 2 bits a third.
  const std::vector<std::pair<const char*, double>> mixes = {
      {"Q2_K", 0.35},   {"Q3_K_M", 0.2},  {"Q4_0", 0.12},  {"Q4_1", 0.1},
      {"Q4_K_M", 0.09}, {"IQ4_XS", 0.1},  {"IQ4_NL", 0.1}, {"Q5_0", 0.06},
      {"Q5_1", 0.05},   {"Q5_K_M", 0.05}, {"Q6_K", 0.025}, {"Q8_0", 0.01}};
  std::map<std::string, std::string> alone;
  for (const auto& [mix, most] : mixes) {
    alone[mix] = dir_.read(write(options(mix, squares_), Group(), mix));
    expect_near(mix, most);
    EXPECT_TRUE(notes_.empty()) << mix;
  }
  alone["products"] = dir_.read(write(options("Q4_K_M", products_), Group(), "products"));
  expect_near("products", 0.2);
  for (const int ranks : {2, 3}) {
    test::run_ranks(ranks, [&](dist::World& world) {
      for (const auto& [name, bytes] : alone) {
        const bool has_products = name == "products";
        const QuantizationOptions wanted =
            options(has_products ? "Q4_K_M" : name.c_str(), has_products ? products_ : squares_);
        write(wanted, world.group(), "of-ranks");
        EXPECT_TRUE(world.group().rank() != 0 || dir_.read("of-ranks") == bytes) << name;
      }
    });
  }
}

TEST_F(QuantizedGguf, KeepsTheBudgetOnAnyNumberOfRanks) {
  for (const Importance& importance : {squares_, products_}) {
    QuantizationOptions wanted = options("Q4_K_M", importance);
    wanted.bits_per_weight = 4.5;
    wanted.embedding = core::Dtype::kQ8_0;
    const std::string bytes = dir_.read(write(wanted, Group(), "budget"));
    EXPECT_LE(bits_, 4.5);
    EXPECT_GT(bits_, 4.3);
    const auto file = io::TensorFile::open(dir_.at("budget"));
    EXPECT_EQ(file->require("token_embd.weight").dtype, core::Dtype::kQ8_0);
    test::run_ranks(2, [&](dist::World& world) {
      write(wanted, world.group(), "of-ranks");
      EXPECT_TRUE(world.group().rank() != 0 || dir_.read("of-ranks") == bytes);
    });
  }
}

// Products tell losses that add up, so a bit goes where it saves most of the model's.
TEST_F(QuantizedGguf, GivesBitsToWhatTheLossDependsOn) {
  QuantizationOptions wanted = options("Q4_K_M", products_);
  wanted.bits_per_weight = 4.5;
  write(wanted, Group(), "usual");
  constexpr char kName[] = "blk.0.ffn_up.weight";
  wanted.importance.tensors[kName].products = products_.tensors[kName].products * 1000;
  write(wanted, Group(), "sensitive");
  const auto bits = [&](const char* file) {
    const auto& type = core::info(io::TensorFile::open(dir_.at(file))->require(kName).dtype);
    return static_cast<double>(type.block_bytes) / static_cast<double>(type.block_elements);
  };
  EXPECT_GT(bits("sensitive"), bits("usual"));
}

// Those of experts have none, and losses of two kinds can't be compared.
TEST_F(QuantizedGguf, ChoosesBySquaresWhereProductsAreMissing) {
  QuantizationOptions wanted = options("Q4_K_M", products_);
  wanted.importance_path = "FILE";
  wanted.bits_per_weight = 4.5;
  wanted.importance.tensors["blk.0.ffn_up.weight"].products = at::Tensor();
  write(wanted, Group(), "mixed");
  EXPECT_LE(bits_, 4.5);
  EXPECT_EQ(notes_, std::vector<std::string>{"FILE: has no products of blk.0.ffn_up.weight, so all "
                                             "types are chosen by squares"});
}

TEST_F(QuantizedGguf, SaysWhatItDoesOtherwise) {
  const std::string folder = test::family_with_tokenizer(dir_, "mixtral");
  folder_ = io::TensorFile::open(folder);
  QuantizationOptions wanted = options("Q4_K_M");
  wanted.importance_path = "FILE";
  wanted.importance.tensors["blk.0.attn_q.weight"] = {at::ones({1, 32}), at::ones({1}), {}};
  write(wanted, Group(), "out.gguf");
  EXPECT_EQ(
      notes_,
      (std::vector<std::string>{
          "blk.0.ffn_down_exps.weight: rows of 28 are no whole blocks of Q4_K, so they are F16",
          "token_embd.weight and 11 others: rows of 32 are no whole blocks of Q4_K, so they are "
          "Q5_0",
          "blk.1.ffn_down_exps.weight: rows of 28 are no whole blocks of Q6_K, so they are F16",
          "blk.1.attn_v.weight: rows of 32 are no whole blocks of Q6_K, so they are Q8_0",
          "FILE: says nothing of blk.0.attn_k.weight and 10 others, which are rounded without "
          "importances"}));
}

TEST_F(QuantizedGguf, RefusesBudgetsAndImportancesThatDoNotFit) {
  QuantizationOptions wanted = options("Q4_K_M");
  wanted.bits_per_weight = 2;
  EXPECT_EQ(error_text([&] { write(wanted, Group(), "out"); }),
            "ConfigError: models.quantize: 2 bits per weight, expected at least 2.65626, which the "
            "smallest types take");
  wanted = options("Q4_K_M");
  wanted.tensors.push_back({"atn_v", std::regex("atn_v"), core::Dtype::kQ6K});
  EXPECT_EQ(error_text([&] { write(wanted, Group(), "out"); }),
            "ConfigError: models.quantize: 'atn_v', expected a part of a matrix's name in GGUF, "
            "e.g. 'attn_v', got none that has it");
  wanted = options("Q4_K_M", products_);
  wanted.importance.tensors["blk.0.attn_q.weight"].products = -at::eye(256);
  EXPECT_EQ(error_text([&] { write(wanted, Group(), "out"); }),
            "FormatError: importance matrix: 'blk.0.attn_q.weight': quant.feedback_factor: "
            "products, expected a positive semidefinite matrix; make it again");
  wanted = options("Q4_K_M");
  wanted.importance.tensors["blk.0.attn_q.weight"] = {at::ones({1, 128}), at::ones({1}), {}};
  EXPECT_EQ(error_text([&] { write(wanted, Group(), "out"); }),
            "FormatError: importance matrix: 'blk.0.attn_q.weight', expected 256 columns of matrix "
            "0, got [1, 128]; it is of another model");
  EXPECT_FALSE(std::filesystem::exists(dir_.at("out")));
}

}  // namespace
}  // namespace weft::models
