#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/io/views/plan_fixture.h"
#include "tests/models/published_logits.h"
#include "tests/models/up_and_down.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/dense_linear.h"

// Matrices of 4-bit codes with a book of 16 numbers, as bitsandbytes writes them, read for any
// number of ranks. The expected values follow the format's description.

namespace weft::models {
namespace {

using io::Dtype;
using nlohmann::json;
using test::bytes_of_tensor;
using test::expect_published_logits;
using test::expect_up_and_down;
using test::up_and_down;
using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::replaced;

// Blocks of 64 lie across rows, and the last is smaller.
constexpr int64_t kCodedRows = 50, kCodedColumns = 94, kCodedBlock = 64;
constexpr int64_t kNumCodes = kCodedRows * kCodedColumns;
constexpr int64_t kNumBlocks = (kNumCodes + kCodedBlock - 1) / kCodedBlock;

// Two random matrices, "up" and "down".
struct CodebookFile {
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  std::map<std::string, at::Tensor> values;
  json state = {{"quant_type", "nf4"},
                {"blocksize", kCodedBlock},
                {"dtype", "bfloat16"},
                {"shape", {kCodedRows, kCodedColumns}}};

  explicit CodebookFile(bool is_nested) {
    at::manual_seed(3);
    for (const char* base : {"up", "down"}) add_matrix(base, is_nested);
  }
  void add(const std::string& name, Dtype dtype, const at::Tensor& tensor) {
    types.push_back({name, dtype, tensor.sizes().vec()});
    bytes[name] = bytes_of_tensor(tensor);
  }
  void set_state(const std::string& base) {
    const std::string text = state.dump(), name = base + ".weight.quant_state.bitsandbytes__nf4";
    std::erase_if(types, [&](const NamedType& type) { return type.name == name; });
    types.push_back({name, Dtype::kU8, {static_cast<int64_t>(text.size())}});
    bytes[name] = text;
  }

 private:
  void add_matrix(const std::string& base, bool is_nested) {
    const at::Tensor codes = at::randint(0, 16, {kNumCodes}, at::kByte);
    const at::Tensor pairs = codes.view({-1, 2});
    add(base + ".weight", Dtype::kU8, pairs.select(1, 0) * 16 + pairs.select(1, 1));
    types.back().shape.push_back(1);
    const at::Tensor book = at::randn({16});
    add(base + ".weight.quant_map", Dtype::kF32, book);
    const at::Tensor scales = is_nested ? nested(base) : at::rand({kNumBlocks});
    if (!is_nested) add(base + ".weight.absmax", Dtype::kF32, scales);
    set_state(base);
    const at::Tensor each = scales.repeat_interleave(kCodedBlock).narrow(0, 0, kNumCodes);
    values[base] = (book.index({codes.to(at::kLong)}) * each).view({kCodedRows, kCodedColumns});
  }
  // Scales that are codes themselves, with a scale for each 32 of them.
  at::Tensor nested(const std::string& base) {
    constexpr int64_t kOuterBlock = 32;
    const at::Tensor codes = at::randint(0, 256, {kNumBlocks}, at::kByte);
    const at::Tensor book = at::randn({256}), outer = at::rand({(kNumBlocks + 31) / kOuterBlock});
    add(base + ".weight.absmax", Dtype::kU8, codes);
    add(base + ".weight.nested_quant_map", Dtype::kF32, book);
    add(base + ".weight.nested_absmax", Dtype::kF32, outer);
    state["nested_blocksize"] = kOuterBlock;
    state["nested_offset"] = 0.25;
    const at::Tensor each = outer.repeat_interleave(kOuterBlock).narrow(0, 0, kNumBlocks);
    return book.index({codes.to(at::kLong)}) * each + 0.25;
  }
};

TEST(CodebookFiles, AreCutForAnyNumberOfRanks) {
  for (const bool is_nested : {false, true}) {
    const CodebookFile tensors(is_nested);
    const PlanFile file(tensors.types, tensors.bytes);
    expect_up_and_down<nn::DenseLinearImpl>(file.file(), up_and_down(kCodedRows, kCodedColumns),
                                            tensors.values.at("up"), tensors.values.at("down"));
  }
}

std::string codebook_error(const CodebookFile& tensors) {
  const PlanFile file(tensors.types, tensors.bytes);
  return replaced(error_text([&] {
                    const LoadPlan plan(file.file(), up_and_down(kCodedRows, kCodedColumns), 2);
                    WeightReader(file.file(), plan, 0).linear("up", false);
                  }),
                  file.file().path(), "FILE");
}

TEST(CodebookFiles, ThatDoNotFitAreRefused) {
  CodebookFile file(true);
  EXPECT_EQ(codebook_error(file), "no error");
  const auto state_error = [](const char* key, const json& value) {
    CodebookFile tensors(true);
    tensors.state[key] = value;
    tensors.set_state("up");
    return replaced(codebook_error(tensors), "up.weight.quant_state.bitsandbytes__nf4", "STATE");
  };
  EXPECT_EQ(state_error("blocksize", 48),
            "FormatError: FILE: tensor 'STATE'.blocksize: 48, expected a power of two, 2 to 4096");
  EXPECT_EQ(state_error("blocksize", 128),
            "FormatError: FILE: tensor 'up.weight.absmax': 74 scales for 4700 numbers in blocks of "
            "128, expected 37");
  EXPECT_EQ(state_error("nested_blocksize", 64),
            "FormatError: FILE: tensor 'up.weight.nested_absmax': 3 scales for 74 numbers in "
            "blocks of 64, expected 2");
  EXPECT_EQ(state_error("shape", {kCodedColumns, kCodedRows}),
            "FormatError: FILE: tensor 'STATE'.shape: [94,50], expected [50,94]; the file and the "
            "model's config disagree");
  file.types[0].shape = {kNumCodes / 2};
  EXPECT_EQ(codebook_error(file),
            "FormatError: FILE: tensor 'up.weight': U8 [2350], expected U8 [2350, 1]");
}

TEST(CodebookModels, GiveTheLogitsOfThePublishedImplementation) {
  expect_published_logits({"llama_nf4", "qwen3_fp4"});
}

}  // namespace
}  // namespace weft::models
