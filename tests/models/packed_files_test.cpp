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

constexpr int64_t kOut = 48, kIn = 96, kGroup = 32;

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

struct Numbers {
  int64_t in, group;
  at::Tensor q, zeros, scales;
  // The quant group of each column: its neighbours', or any.
  at::Tensor groups;

  explicit Numbers(int seed, bool is_ordered = false, int64_t columns = kIn, int64_t each = kGroup)
      : in(columns), group(each) {
    at::manual_seed(static_cast<uint64_t>(seed));
    q = at::randint(0, 16, {kOut, in}, at::kLong);
    zeros = at::randint(1, 16, {num_groups(), kOut}, at::kLong);
    scales = at::rand({num_groups(), kOut}).to(at::kHalf);
    groups = at::arange(in, at::kInt).floor_divide(group).to(at::kInt);
    if (is_ordered) groups = groups.index({at::randperm(in)});
  }
  int64_t num_groups() const { return in / group; }
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

// The two matrices of a file.
struct PackedFile {
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;

  void add(const std::string& name, Dtype type, const std::vector<int64_t>& shape,
           const std::string& data) {
    types.push_back({name, type, shape});
    bytes[name] = data;
  }
  PlanFile file() const { return {types, bytes}; }
};

void add_awq(const std::string& base, const Numbers& numbers, PackedFile& file) {
  const int64_t groups = numbers.num_groups();
  file.add(base + ".qweight", Dtype::kI32, {numbers.in, kOut / 8},
           packed_columns(numbers.q.t(), kAwq));
  file.add(base + ".qzeros", Dtype::kI32, {groups, kOut / 8}, packed_columns(numbers.zeros, kAwq));
  file.add(base + ".scales", Dtype::kF16, {groups, kOut}, bytes_of_tensor(numbers.scales));
}

// Version gemv, whose rows have room for `padded` quant groups. What fills it must not be read.
void add_awq_rows(const std::string& base, const Numbers& numbers, int64_t padded,
                  PackedFile& file) {
  const auto with_padding = [&](const at::Tensor& part, int64_t value) {
    const at::Tensor rest = at::full({kOut, padded - numbers.num_groups()}, value, part.options());
    return at::cat({part.t(), rest}, 1);
  };
  file.add(base + ".qweight", Dtype::kI32, {kOut, numbers.in / 8},
           packed_columns(numbers.q, kPlain));
  file.add(base + ".qzeros", Dtype::kI32, {kOut, padded / 8},
           packed_columns(with_padding(numbers.zeros, 9), kPlain));
  file.add(base + ".scales", Dtype::kF16, {kOut, padded},
           bytes_of_tensor(with_padding(numbers.scales, 77)));
}

void add_gptq(const std::string& base, const Numbers& numbers, PackedFile& file) {
  const int64_t groups = numbers.num_groups(), in = numbers.in;
  // Eight rows of one column to a word.
  const at::Tensor by_row = numbers.q.t().view({in / 8, 8, kOut}).transpose(1, 2);
  file.add(base + ".qweight", Dtype::kI32, {in / 8, kOut},
           packed_columns(by_row.reshape({in / 8 * kOut, 8}), kPlain));
  file.add(base + ".qzeros", Dtype::kI32, {groups, kOut / 8},
           packed_columns(numbers.zeros - 1, kPlain));
  file.add(base + ".scales", Dtype::kF16, {groups, kOut}, bytes_of_tensor(numbers.scales));
  file.add(base + ".g_idx", Dtype::kI32, {in}, bytes_of_tensor(numbers.groups));
}

// What config.json says of quant groups; 0: of whole rows.
PlanOptions with_groups(const char* method, int64_t group) {
  PlanOptions options;
  QuantizationConfig& said = options.quantization.emplace();
  said.where = "CONFIG";
  said.all = {method, 4, group};
  said.stores_zero_less_one = true;
  return options;
}

// "up" and "down" of these numbers, that `add` puts into a file, in any number of pieces.
template <class Add>
void expect_shards(int64_t in, int64_t group, const PlanOptions& options, const std::string& text,
                   const Add& add) {
  const Numbers up(1, false, in, group), down(2, false, in, group);
  PackedFile packed;
  add("up", up, packed);
  add("down", down, packed);
  const PlanFile file = packed.file();
  const WeightRules rules = up_and_down(kOut, in, 8);
  EXPECT_EQ(LoadPlan(file.file(), rules, 2, options).require("up.weight").format.text, text);
  expect_up_and_down<nn::QuantizedLinearImpl>(file.file(), rules, up.values(), down.values(),
                                              options);
}

struct GroupCase {
  int64_t in, group;
};
// Usual ones, odd ones, and whole rows, of which the last can't be cut in runs of 32.
constexpr GroupCase kGroupCases[] = {{96, 32},  {384, 64},  {384, 128}, {96, 8},
                                     {144, 48}, {384, 384}, {72, 72}};

TEST(PackedFiles, AwqIsCutForAnyNumberOfRanks) {
  for (const auto& [in, group] : kGroupCases) {
    const std::string text = core::join("awq 4-bit g", group);
    expect_shards(in, group, {}, text, add_awq);
    expect_shards(in, group, with_groups("awq", group == in ? 0 : group), text, add_awq);
  }
}

TEST(PackedFiles, GptqIsCutForAnyNumberOfRanks) {
  for (const auto& [in, group] : kGroupCases) {
    const std::string text = core::join("gptq 4-bit g", group);
    expect_shards(in, group, with_groups("gptq", group == in ? 0 : group), text, add_gptq);
  }
}

// A rank reads its own columns of whole rows that have one scale, not all of them.
TEST(PackedFiles, WholeRowsOfOneScaleAreReadInPieces) {
  PackedFile packed;
  add_awq("up", Numbers(1, false, 384, 384), packed);
  add_awq("down", Numbers(2, false, 384, 384), packed);
  const PlanFile file = packed.file();
  const LoadPlan plan(file.file(), up_and_down(kOut, 384, 8), 3);
  EXPECT_EQ(plan.params().find("down.qweight")->of(1).result.shape(),
            (std::vector<int64_t>{128, kOut / 8}));
  EXPECT_EQ(plan.params().find("down.scales")->of(1).result.shape(),
            (std::vector<int64_t>{1, kOut}));
}

TEST(PackedFiles, AwqByRowsIsCutForAnyNumberOfRanks) {
  struct RowCase {
    int64_t in, group, padded;
  };
  // Scales of a row fill words of eight, or two or four such.
  for (const auto& [in, group, padded] :
       {RowCase{1152, 128, 16}, RowCase{384, 64, 16}, RowCase{96, 32, 32}, RowCase{384, 384, 8}}) {
    const auto add = [padded = padded](const std::string& base, const Numbers& numbers,
                                       PackedFile& file) {
      add_awq_rows(base, numbers, padded, file);
    };
    expect_shards(in, group, with_groups("awq", group == in ? 0 : group),
                  core::join("awq 4-bit g", group, " by rows"), add);
  }
}

// Three quant groups of 128 and a whole row of 384 take the same room; without a word it is 128.
TEST(PackedFiles, AwqByRowsTakesQuantGroupsFromTheConfig) {
  const auto add = [](const std::string& base, const Numbers& numbers, PackedFile& file) {
    add_awq_rows(base, numbers, 8, file);
  };
  expect_shards(384, 128, {}, "awq 4-bit g128 by rows", add);
  PackedFile packed;
  add("up", Numbers(1, false, 384, 128), packed);
  add("down", Numbers(2, false, 384, 128), packed);
  const PlanFile file = packed.file();
  EXPECT_EQ(replaced(error_text([&] {
                       LoadPlan(file.file(), up_and_down(kOut, 384, 8), 2, with_groups("awq", 64));
                     }),
                     file.file().path(), "FILE"),
            "FormatError: CONFIG: 'up' is awq 4-bit g64, but its tensors are awq 4-bit g128; the "
            "file and its config disagree");
  PackedFile narrow;
  add_awq_rows("up", Numbers(1, false, 96, 32), 16, narrow);
  add_awq_rows("down", Numbers(1, false, 96, 32), 16, narrow);
  const PlanFile damaged = narrow.file();
  EXPECT_EQ(replaced(error_text([&] { LoadPlan(damaged.file(), up_and_down(kOut, 96, 8), 2); }),
                     damaged.file().path(), "FILE"),
            "FormatError: FILE: tensor 'up.qweight': packed [48, 12] with scales [48, 16], "
            "expected a 4-bit AWQ matrix of [48, 96] by rows, in quant groups of 32, 64, 128 or a "
            "whole row");
}

TEST(PackedFiles, AwqByRowsHasScalesOfOneMatrix) {
  PackedFile packed;
  add_awq_rows("up", Numbers(1), 32, packed);
  add_awq_rows("down", Numbers(2), 32, packed);
  packed.types[2].shape = {1, kOut, 32};
  const PlanFile file = packed.file();
  EXPECT_EQ(replaced(error_text([&] { LoadPlan(file.file(), up_and_down(kOut, kIn, 8), 2); }),
                     file.file().path(), "FILE"),
            "FormatError: FILE: tensor 'up.scales': shape [1, 48, 32], expected [48, 32]; the file "
            "and the model's config disagree");
}

PlanOptions with_act_order() {
  PlanOptions options = with_groups("gptq", kGroup);
  options.quantization->is_ordered = true;
  return options;
}

TEST(PackedFiles, ActOrderIsReadAsPlainNumbers) {
  const Numbers up(3, true), down(4, true);
  PackedFile packed;
  add_gptq("up", up, packed);
  add_gptq("down", down, packed);
  const PlanFile file = packed.file();
  const WeightRules rules = up_and_down(kOut, kIn, 8);
  const PlanOptions options = with_act_order();
  EXPECT_EQ(LoadPlan(file.file(), rules, 2, options).require("up.weight").format.text,
            "gptq 4-bit g32 act-order");
  expect_up_and_down<nn::DenseLinearImpl>(file.file(), rules, up.values(), down.values(), options);
}

std::string gptq_error(const Numbers& up, const PlanOptions& options) {
  PackedFile packed;
  add_gptq("up", up, packed);
  add_gptq("down", Numbers(4), packed);
  const PlanFile file = packed.file();
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
