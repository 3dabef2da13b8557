#include <gtest/gtest.h>

#include <map>

#include "tests/io/views/plan_fixture.h"
#include "tests/models/published_logits.h"
#include "tests/models/up_and_down.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"

// Matrices of integers with scales, as compressed-tensors writes them, read for any number of
// ranks. The packing here follows the formats' own description; the values are (q - zero) * scale.

namespace weft::models {
namespace {

using io::Dtype;
using test::bytes_of_tensor;
using test::expect_published_logits;
using test::expect_up_and_down;
using test::up_and_down;
using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::replaced;

constexpr int64_t kIntegerRows = 48, kIntegerColumns = 96;

// How a file keeps its matrices. `group` 0: a scale for each row.
struct IntegerForm {
  int64_t bits = 4;
  int64_t group = 32;
  bool is_packed = true;
  bool has_zeros = false;
  at::ScalarType scale_type = at::kBFloat16;
  // Columns belong to quant groups in any order.
  bool is_ordered = false;
};

// A stream of numbers of so many bits along each row of [rows, n], lowest bits first.
std::string streams(const at::Tensor& numbers, int64_t bits) {
  const at::Tensor codes = numbers.contiguous();
  std::string bytes(static_cast<size_t>(codes.numel() * bits / 8), '\0');
  for (int64_t i = 0; i < codes.numel() * bits; ++i) {
    const int64_t code = codes.const_data_ptr<int64_t>()[i / bits];
    const auto bit = static_cast<char>((code >> (i % bits) & 1) << (i % 8));
    bytes[static_cast<size_t>(i / 8)] = static_cast<char>(bytes[static_cast<size_t>(i / 8)] | bit);
  }
  return bytes;
}

// Words [rows, words] as a file has them that packs down the columns.
std::string transposed_words(const std::string& bytes, int64_t rows) {
  const auto columns = static_cast<int64_t>(bytes.size()) / 4 / rows;
  const at::Tensor words =
      at::from_blob(const_cast<char*>(bytes.data()), {rows, columns}, at::kInt).t();
  return bytes_of_tensor(words);
}

// Two random matrices, "up" and "down".
struct IntegerFile {
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  std::map<std::string, at::Tensor> values;

  explicit IntegerFile(const IntegerForm& form) {
    at::manual_seed(static_cast<uint64_t>(form.bits));
    for (const char* base : {"up", "down"}) add(base, form);
  }
  void add_tensor(const std::string& name, Dtype type, const std::vector<int64_t>& shape,
                  const std::string& data) {
    types.push_back({name, type, shape});
    bytes[name] = data;
  }
  void add(const std::string& base, const IntegerForm& form) {
    const int64_t middle = int64_t{1} << (form.bits - 1);
    const int64_t group = form.group == 0 ? kIntegerColumns : form.group;
    const int64_t groups = kIntegerColumns / group;
    const at::Tensor q = at::randint(-middle, middle, {kIntegerRows, kIntegerColumns}, at::kLong);
    // Of so few bits that all products are exact in float32.
    const at::Tensor scales = at::rand({kIntegerRows, groups}).to(at::kHalf).to(form.scale_type);
    at::Tensor zeros = at::zeros({kIntegerRows, groups}, at::kLong);
    if (form.has_zeros) zeros = at::randint(-middle, middle, {kIntegerRows, groups}, at::kLong);
    if (form.is_packed) {
      add_tensor(base + ".weight_packed", Dtype::kI32,
                 {kIntegerRows, kIntegerColumns * form.bits / 32}, streams(q + middle, form.bits));
      add_tensor(base + ".weight_shape", Dtype::kI64, {2}, std::string(16, '\0'));
    } else {
      add_tensor(base + ".weight", Dtype::kI8, {kIntegerRows, kIntegerColumns},
                 bytes_of_tensor(q.to(at::kChar)));
    }
    const Dtype type = form.scale_type == at::kHalf    ? Dtype::kF16
                       : form.scale_type == at::kFloat ? Dtype::kF32
                                                       : Dtype::kBF16;
    add_tensor(base + ".weight_scale", type, {kIntegerRows, groups}, bytes_of_tensor(scales));
    if (form.has_zeros) {
      add_tensor(base + ".weight_zero_point", Dtype::kI32, {kIntegerRows * form.bits / 32, groups},
                 transposed_words(streams((zeros + middle).t(), form.bits), groups));
    }
    at::Tensor order = at::arange(kIntegerColumns, at::kInt).floor_divide(group).to(at::kInt);
    if (form.is_ordered) {
      order = order.index({at::randperm(kIntegerColumns)});
      add_tensor(base + ".weight_g_idx", Dtype::kI32, {kIntegerColumns}, bytes_of_tensor(order));
    }
    const auto spread = [&](const at::Tensor& x) { return x.index_select(1, order); };
    values[base] = (q - spread(zeros)).to(at::kFloat) * spread(scales.to(at::kFloat));
  }
  PlanFile file() const { return {types, bytes}; }
};

TEST(ScaledIntegerFiles, AreCutForAnyNumberOfRanks) {
  std::vector<IntegerForm> forms;
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) forms.push_back({bits, 32, true, false, at::kHalf});
  forms.push_back({4, 16, true, true, at::kBFloat16});
  forms.push_back({8, 96, true, true, at::kFloat});
  forms.push_back({4, 0, true, true, at::kHalf});
  forms.push_back({4, 0, true, false, at::kBFloat16});
  forms.push_back({8, 0, false, false, at::kBFloat16});
  forms.push_back({8, 24, false, false, at::kFloat});
  for (const IntegerForm& form : forms) {
    const IntegerFile tensors(form);
    expect_up_and_down<nn::QuantizedLinearImpl>(tensors.file().file(),
                                                up_and_down(kIntegerRows, kIntegerColumns, 8),
                                                tensors.values.at("up"), tensors.values.at("down"));
  }
}

TEST(ScaledIntegerFiles, WithActOrderAreReadAsPlainNumbers) {
  for (const int64_t bits : {2, 4, 8}) {
    const IntegerFile tensors({bits, 32, true, bits == 4, at::kHalf, true});
    expect_up_and_down<nn::DenseLinearImpl>(tensors.file().file(),
                                            up_and_down(kIntegerRows, kIntegerColumns, 8),
                                            tensors.values.at("up"), tensors.values.at("down"));
  }
}

std::string integers_load_error(const IntegerFile& tensors) {
  const PlanFile file = tensors.file();
  return replaced(
      error_text([&] { LoadPlan(file.file(), up_and_down(kIntegerRows, kIntegerColumns, 8), 2); }),
      file.file().path(), "FILE");
}

TEST(ScaledIntegerFiles, ThatDoNotFitAreRefused) {
  IntegerFile ordered({});
  ordered.add_tensor("up.weight_g_idx", Dtype::kI32, {kIntegerColumns - 1},
                     std::string(4 * (kIntegerColumns - 1), '\0'));
  EXPECT_EQ(integers_load_error(ordered),
            "FormatError: FILE: tensor 'up.weight_g_idx': I32 [95], expected I32 [96]");
  IntegerFile narrow({});
  narrow.types[0].shape = {kIntegerRows, 11};
  narrow.bytes["up.weight_packed"].resize(kIntegerRows * 44);
  EXPECT_EQ(integers_load_error(narrow),
            "FormatError: FILE: tensor 'up.weight_packed': I32 [48, 11], expected I32 [48, words "
            "of numbers of 2 to 6 or 8 bits that fill them, for 96 columns]");
  IntegerFile loose({});
  loose.types[0].shape = {kIntegerRows, 10};
  loose.bytes["up.weight_packed"].resize(kIntegerRows * 40);
  EXPECT_EQ(integers_load_error(loose),
            "FormatError: FILE: tensor 'up.weight_packed': 10 words a row hold 10 numbers of 3 "
            "bits each, expected numbers that fill the words; pack them anew with a later "
            "compressed-tensors");
  IntegerFile whole({8, 0, false, false, at::kFloat});
  whole.types[1].shape = {1};
  whole.bytes["up.weight_scale"].resize(4);
  EXPECT_EQ(integers_load_error(whole),
            "FormatError: FILE: tensor 'up.weight_scale': scales [1] of a matrix of [48, 96], "
            "expected one for each row, or for each quant group of a row");
  IntegerFile shifted({8, 0, false, false, at::kFloat});
  shifted.add_tensor("up.weight_zero_point", Dtype::kI8, {kIntegerRows, 1},
                     std::string(kIntegerRows, '\0'));
  EXPECT_EQ(integers_load_error(shifted),
            "FormatError: FILE: tensor 'up.weight_zero_point': I8 [48, 1], expected I32 beside "
            "packed numbers of 2, 4 or 8 bits, and rows that fill its words; convert the model to "
            "bfloat16 first");
}

TEST(ScaledIntegerModels, GiveTheLogitsOfThePublishedImplementation) {
  expect_published_logits({"qwen3_int4", "llama_int8"});
}

}  // namespace
}  // namespace weft::models
