#include <gtest/gtest.h>

#include <random>

#include "tests/io/views/plan_fixture.h"
#include "tests/models/up_and_down.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"

// Matrices as AutoAWQ and AutoGPTQ write them, read for any number of ranks. The packing here
// follows the formats' own description; the values are (q - zero) * scale.

namespace weft::models {
namespace {

using io::Dtype;
using test::bytes_of_tensor;
using test::expect_up_and_down;
using test::up_and_down;
using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::replaced;

constexpr int64_t kOut = 48, kIn = 96, kGroup = 32, kGroups = kIn / kGroup;

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

struct Numbers {
  at::Tensor q, zeros, scales;
  // The quant group of each column: its neighbours', or any.
  at::Tensor groups = at::arange(kIn, at::kInt).floor_divide(kGroup).to(at::kInt);

  explicit Numbers(int seed, bool is_ordered = false) {
    at::manual_seed(static_cast<uint64_t>(seed));
    q = at::randint(0, 16, {kOut, kIn}, at::kLong);
    zeros = at::randint(1, 16, {kGroups, kOut}, at::kLong);
    scales = at::rand({kGroups, kOut}).to(at::kHalf);
    if (is_ordered) groups = groups.index({at::randperm(kIn)});
  }
  at::Tensor values() const {
    const auto by_column = [&](const at::Tensor& x) {
      return x.index({groups.to(at::kLong)}).t().to(at::kFloat);
    };
    return (q.to(at::kFloat) - by_column(zeros)) * by_column(scales);
  }
};

// Columns of `rows` [r, c] packed eight to a word; nibble i holds column order[i] of the eight.
std::string packed_columns(const at::Tensor& rows, const std::vector<int64_t>& order) {
  std::vector<uint32_t> words;
  for (int64_t r = 0; r < rows.size(0); ++r) {
    for (int64_t c = 0; c < rows.size(1); c += 8) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) {
        word |= static_cast<uint32_t>(rows[r][c + order[static_cast<size_t>(i)]].item<int64_t>())
                << (4 * i);
      }
      words.push_back(word);
    }
  }
  return bytes_of_values(words);
}

const std::vector<int64_t> kPlain = {0, 1, 2, 3, 4, 5, 6, 7};
const std::vector<int64_t> kAwq = {0, 2, 4, 6, 1, 3, 5, 7};

void add_awq(const std::string& base, const Numbers& numbers, std::vector<NamedType>& types,
             std::map<std::string, std::string>& bytes) {
  types.push_back({base + ".qweight", Dtype::kI32, {kIn, kOut / 8}});
  types.push_back({base + ".qzeros", Dtype::kI32, {kGroups, kOut / 8}});
  types.push_back({base + ".scales", Dtype::kF16, {kGroups, kOut}});
  bytes[base + ".qweight"] = packed_columns(numbers.q.t(), kAwq);
  bytes[base + ".qzeros"] = packed_columns(numbers.zeros, kAwq);
  bytes[base + ".scales"] = bytes_of_tensor(numbers.scales);
}

void add_gptq(const std::string& base, const Numbers& numbers, std::vector<NamedType>& types,
              std::map<std::string, std::string>& bytes) {
  types.push_back({base + ".qweight", Dtype::kI32, {kIn / 8, kOut}});
  types.push_back({base + ".qzeros", Dtype::kI32, {kGroups, kOut / 8}});
  types.push_back({base + ".scales", Dtype::kF16, {kGroups, kOut}});
  types.push_back({base + ".g_idx", Dtype::kI32, {kIn}});
  // Eight rows of one column to a word.
  const at::Tensor by_row = numbers.q.t().view({kIn / 8, 8, kOut}).transpose(1, 2);
  bytes[base + ".qweight"] = packed_columns(by_row.reshape({kIn / 8 * kOut, 8}), kPlain);
  bytes[base + ".qzeros"] = packed_columns(numbers.zeros - 1, kPlain);
  bytes[base + ".scales"] = bytes_of_tensor(numbers.scales);
  bytes[base + ".g_idx"] = bytes_of_tensor(numbers.groups);
}

void expect_shards(const PlanFile& file, const Numbers& up, const Numbers& down) {
  expect_up_and_down<nn::QuantizedLinearImpl>(file.file(), up_and_down(kOut, kIn, 8), up.values(),
                                              down.values());
}

TEST(PackedFiles, AwqIsCutForAnyNumberOfRanks) {
  const Numbers up(1), down(2);
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  add_awq("up", up, types, bytes);
  add_awq("down", down, types, bytes);
  const PlanFile file(types, bytes);
  EXPECT_EQ(LoadPlan(file.file(), up_and_down(kOut, kIn, 8), 2).require("up.weight").format.text,
            "awq 4-bit g32");
  expect_shards(file, up, down);
}

TEST(PackedFiles, GptqIsCutForAnyNumberOfRanks) {
  const Numbers up(3), down(4);
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  add_gptq("up", up, types, bytes);
  add_gptq("down", down, types, bytes);
  expect_shards(PlanFile(types, bytes), up, down);
}

// What config.json says of a file made with act-order.
PlanOptions with_act_order() {
  PlanOptions options;
  QuantizationConfig& said = options.quantization.emplace();
  said.where = "CONFIG";
  said.all = {"gptq", 4, kGroup};
  said.stores_zero_less_one = true;
  said.is_ordered = true;
  return options;
}

TEST(PackedFiles, ActOrderIsReadAsPlainNumbers) {
  const Numbers up(3, true), down(4, true);
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  add_gptq("up", up, types, bytes);
  add_gptq("down", down, types, bytes);
  const PlanFile file(types, bytes);
  const WeightRules rules = up_and_down(kOut, kIn, 8);
  const PlanOptions options = with_act_order();
  EXPECT_EQ(LoadPlan(file.file(), rules, 2, options).require("up.weight").format.text,
            "gptq 4-bit g32 act-order");
  expect_up_and_down<nn::DenseLinearImpl>(file.file(), rules, up.values(), down.values(), options);
}

std::string gptq_error(const Numbers& up, const PlanOptions& options) {
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  add_gptq("up", up, types, bytes);
  add_gptq("down", Numbers(4), types, bytes);
  const PlanFile file(types, bytes);
  const LoadPlan plan(file.file(), up_and_down(kOut, kIn, 8), 2, options);
  return replaced(error_text([&] { WeightReader(file.file(), plan, 0).linear("up", false); }),
                  file.file().path(), "FILE");
}

TEST(PackedFiles, ActOrderThatDoesNotFitIsRefused) {
  Numbers unsaid(3);
  unsaid.groups[33] = 0;
  EXPECT_EQ(gptq_error(unsaid, {}),
            "ConfigError: FILE: tensor 'up.g_idx': g_idx of row 33, expected quant group 1 (groups "
            "of 32 neighbours), got 0; say \"desc_act\" in the file's config.json if it was made "
            "with act-order");
  Numbers damaged(3, true);
  damaged.groups[7] = 3;
  EXPECT_EQ(gptq_error(damaged, with_act_order()),
            "FormatError: FILE: tensor 'up.g_idx': column 7 is of quant group 3, expected 0 to 2; "
            "the file is damaged");
}

}  // namespace
}  // namespace weft::models
