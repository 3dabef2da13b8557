#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/io/views/plan_fixture.h"
#include "tests/models/published_logits.h"
#include "tests/models/up_and_down.h"
#include "weft/core/files/file.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"

// Matrices of integers with scales, as compressed-tensors writes them, read for any number of
// ranks. The packing here follows the formats' own description; the values are (q - zero) * scale.

namespace weft::models {
namespace {

using io::Dtype;
using nlohmann::json;
using test::bytes_of_tensor;
using test::expect_published_logits;
using test::expect_up_and_down;
using test::family_path;
using test::up_and_down;
using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::replaced;
using testing::TempDir;

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
  int64_t rows = kIntegerRows;
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

// Matrices in memory, and their numbers.
struct IntegerFile {
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  std::map<std::string, at::Tensor> values;

  // Random ones, if any.
  explicit IntegerFile(const IntegerForm& form,
                       const std::vector<std::string>& bases = {"up", "down"}) {
    at::manual_seed(static_cast<uint64_t>(form.bits));
    for (const std::string& base : bases) add(base, form);
  }
  void add_tensor(const std::string& name, Dtype type, const std::vector<int64_t>& shape,
                  const std::string& data) {
    types.push_back({name, type, shape});
    bytes[name] = data;
  }
  void add(const std::string& base, const IntegerForm& form) {
    const int64_t middle = int64_t{1} << (form.bits - 1), rows = form.rows;
    const int64_t group = form.group == 0 ? kIntegerColumns : form.group;
    const int64_t groups = kIntegerColumns / group;
    const at::Tensor q = at::randint(-middle, middle, {rows, kIntegerColumns}, at::kLong);
    // Of so few bits that all products are exact in float32.
    const at::Tensor scales = at::rand({rows, groups}).to(at::kHalf).to(form.scale_type);
    at::Tensor zeros = at::zeros({rows, groups}, at::kLong);
    if (form.has_zeros) zeros = at::randint(-middle, middle, {rows, groups}, at::kLong);
    at::Tensor order = at::arange(kIntegerColumns, at::kInt).floor_divide(group).to(at::kInt);
    if (form.is_ordered) {
      order = order.index({at::randperm(kIntegerColumns)});
      add_tensor(base + ".weight_g_idx", Dtype::kI32, {kIntegerColumns}, bytes_of_tensor(order));
    }
    add_parts(base, form, {q, scales, zeros, order});
  }
  // Of each row: numbers, scales and zero points; and of each column its quant group.
  struct Parts {
    at::Tensor q, scales, zeros, order;
  };
  void add_parts(const std::string& base, const IntegerForm& form, const Parts& parts) {
    const auto& [q, scales, zeros, order] = parts;
    const int64_t middle = int64_t{1} << (form.bits - 1), rows = q.size(0), columns = q.size(1);
    if (form.is_packed) {
      add_tensor(base + ".weight_packed", Dtype::kI32, {rows, columns * form.bits / 32},
                 streams(q + middle, form.bits));
      add_tensor(base + ".weight_shape", Dtype::kI64, {2}, std::string(16, '\0'));
    } else {
      add_tensor(base + ".weight", Dtype::kI8, {rows, columns}, bytes_of_tensor(q.to(at::kChar)));
    }
    const Dtype type = form.scale_type == at::kHalf    ? Dtype::kF16
                       : form.scale_type == at::kFloat ? Dtype::kF32
                                                       : Dtype::kBF16;
    add_tensor(base + ".weight_scale", type, scales.sizes().vec(), bytes_of_tensor(scales));
    if (form.has_zeros) {
      const int64_t groups = scales.size(1), words = (rows * form.bits + 31) / 32;
      const at::Tensor padded =
          at::constant_pad_nd(zeros + middle, {0, 0, 0, words * 32 / form.bits - rows});
      add_tensor(base + ".weight_zero_point", Dtype::kI32, {words, groups},
                 transposed_words(streams(padded.t(), form.bits), groups));
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

// "up" as the second of two parts that stand in its tensor by turns.
WeightRules up_by_turns() {
  WeightRules rules = up_and_down(30, kIntegerColumns, 8);
  WeightRule& up = rules.weights.front();
  up.stored_rows = kIntegerRows;
  up.reorder = {{"ungroup", {int64_t{6}, std::vector<int64_t>{3, 5}}, {}, {}},
                {"narrow", {int64_t{0}, int64_t{18}, int64_t{30}}, {}, {}}};
  rules.weights.back().out = kIntegerRows;
  return rules;
}

// Of rows that are not read in the file's order the zero points' words are taken apart.
TEST(ScaledIntegerFiles, GiveRowsInAnotherOrderTheirZeroPoints) {
  for (const IntegerForm& form :
       {IntegerForm{4, 16, true, true, at::kBFloat16}, IntegerForm{8, 96, true, true, at::kFloat},
        IntegerForm{2, 0, true, true, at::kHalf},
        IntegerForm{4, 32, true, true, at::kHalf, true}}) {
    const IntegerFile tensors(form);
    const at::Tensor up = tensors.values.at("up").view({6, 8, kIntegerColumns}).narrow(1, 3, 5);
    const auto expect = [&]<class Impl>() {
      expect_up_and_down<Impl>(tensors.file().file(), up_by_turns(),
                               up.reshape({30, kIntegerColumns}), tensors.values.at("down"));
    };
    if (form.is_ordered) {
      expect.template operator()<nn::DenseLinearImpl>();
    } else {
      expect.template operator()<nn::QuantizedLinearImpl>();
    }
  }
}

TEST(ScaledIntegerFiles, MayHaveRowsThatFillNoWordOfZeroPoints) {
  for (const int64_t group : {0, 32}) {
    const IntegerFile tensors({4, group, true, true, at::kHalf, false, 45});
    expect_up_and_down<nn::QuantizedLinearImpl>(tensors.file().file(),
                                                up_and_down(45, kIntegerColumns, 8),
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
  EXPECT_EQ(
      integers_load_error(shifted),
      "FormatError: FILE: tensor 'up.weight_zero_point': I8 [48, 1], expected I32 beside "
      "packed numbers of 2, 4 or 8 bits, and of a stack rows that fill its words; convert the "
      "model to bfloat16 first");
}

// Numbers of 4 bits and zero points, by the edges of quant groups of 8.
IntegerFile::Parts rounded_parts(const at::Tensor& numbers) {
  const at::Tensor groups = numbers.view({numbers.size(0), -1, 8});
  const at::Tensor low = groups.amin(-1).clamp_max(0), high = groups.amax(-1).clamp_min(0);
  const at::Tensor scales = ((high - low) / 15).clamp_min(1e-4).to(at::kBFloat16);
  const at::Tensor wide = scales.to(at::kFloat);
  const at::Tensor zeros = (-low / wide).round().clamp(0, 15) - 8;
  const at::Tensor q = (groups / wide.unsqueeze(-1)).round() + zeros.unsqueeze(-1);
  return {q.clamp(-8, 7).view_as(numbers).to(at::kLong), scales, zeros.to(at::kLong),
          at::arange(numbers.size(1), at::kInt).floor_divide(8).to(at::kInt)};
}

// A family's golden checkpoint with zero points, and the same in plain numbers.
struct AsymmetricFolders {
  TempDir packed, plain;

  explicit AsymmetricFolders(const std::string& family) {
    const auto source = io::TensorFile::open(family_path(family));
    const IntegerForm form = {4, 8, true, true};
    IntegerFile numbers(form, {}), rounded(form, {});
    for (const io::TensorMeta& tensor : source->tensors()) {
      const std::string base = tensor.name.substr(0, tensor.name.rfind('.'));
      at::Tensor values = io::load_tensor(*source, tensor.name, at::kFloat);
      const bool is_linear = base.ends_with("_proj") || base.find("in_proj_") != std::string::npos;
      const bool is_packed = is_linear && values.dim() == 2 && values.size(1) % 8 == 0;
      if (is_packed) {
        numbers.add_parts(base, form, rounded_parts(values));
        values = numbers.values.at(base);
      } else {
        numbers.add_tensor(tensor.name, Dtype::kF32, tensor.shape, bytes_of_tensor(values));
      }
      rounded.add_tensor(tensor.name, Dtype::kF32, tensor.shape, bytes_of_tensor(values));
    }
    json config = json::parse(core::read_text_file(family_path(family, "config.json"), 1 << 20));
    write(plain, rounded, config);
    const json weights = {{"type", "int"},
                          {"num_bits", 4},
                          {"strategy", "group"},
                          {"group_size", 8},
                          {"symmetric", false}};
    config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                     {"format", "pack-quantized"},
                                     {"config_groups", {{"group_0", {{"weights", weights}}}}}};
    write(packed, numbers, config);
  }

 private:
  static void write(const TempDir& dir, const IntegerFile& tensors, const json& config) {
    std::vector<io::TensorToWrite> list;
    for (const NamedType& tensor : tensors.types) {
      list.push_back({tensor.name, tensor.dtype, tensor.shape,
                      std::as_bytes(std::span(tensors.bytes.at(tensor.name)))});
    }
    io::write_safetensors(dir.at("model.safetensors"), list, {});
    dir.write("config.json", config.dump());
  }
};

// Rows of several matrices are one tensor here, in Qwen3-Next by turns and in parts of words.
TEST(ScaledIntegerModels, WithZeroPointsOfFusedRowsGiveTheLogitsOfTheirNumbers) {
  test::on_ranks([](const dist::Group& group) {
    for (const char* family : {"phi3", "glm4", "qwen3_next"}) {
      const AsymmetricFolders folders(family);
      const auto ids_BT = test::read_reference(family_path(family, "ref.safetensors")).ids_BT;
      const auto logits = [&](const TempDir& dir, const dist::Group& ranks) {
        const auto file = io::TensorFile::open(dir.path());
        return test::logits_of(*load_model(*file, ranks).model, ids_BT);
      };
      EXPECT_LE(test::largest_difference(logits(folders.packed, group),
                                         logits(folders.plain, dist::Group())),
                1e-4)
          << family;
    }
  });
}

TEST(ScaledIntegerModels, GiveTheLogitsOfThePublishedImplementation) {
  expect_published_logits({"qwen3_int4", "llama_int8"});
}

}  // namespace
}  // namespace weft::models
