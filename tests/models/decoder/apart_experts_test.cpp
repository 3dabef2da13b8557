// Folders of Gemma 4 whose experts stand each by itself, as those who quantize them take them
// apart.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/up_and_down.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/json.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using io::Dtype;
using nlohmann::json;
using test::family_path;
using testing::TempDir;

// The tensors of the golden folder, with the experts of each layer apart.
std::map<std::string, at::Tensor> apart_tensors() {
  const auto file = io::TensorFile::open(family_path("gemma4_moe"));
  std::map<std::string, at::Tensor> tensors;
  for (const io::TensorMeta& tensor : file->tensors()) {
    const at::Tensor numbers = io::load_tensor(*file, tensor.name, at::kFloat);
    const size_t at = tensor.name.find(".experts.");
    if (at == std::string::npos) {
      tensors[tensor.name] = numbers;
      continue;
    }
    const bool is_fused = tensor.name.ends_with("gate_up_proj");
    for (int64_t expert = 0; expert < numbers.size(0); ++expert) {
      const std::string base = core::join(tensor.name.substr(0, at), ".experts.", expert, ".");
      const at::Tensor own = numbers[expert];
      const int64_t half = own.size(0) / 2;
      if (is_fused) tensors[base + "gate_proj.weight"] = own.narrow(0, 0, half).contiguous();
      if (is_fused) tensors[base + "up_proj.weight"] = own.narrow(0, half, half).contiguous();
      if (!is_fused) tensors[base + "down_proj.weight"] = own.contiguous();
    }
  }
  return tensors;
}

bool is_of_expert(const std::string& name) { return name.find(".experts.") != std::string::npos; }

void write_folder(const TempDir& dir, const std::map<std::string, at::Tensor>& tensors,
                  const json& quantization = nullptr) {
  std::vector<std::string> bytes;
  std::vector<io::TensorToWrite> list;
  bytes.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    bytes.push_back(test::bytes_of_tensor(tensor));
    const Dtype type = tensor.scalar_type() == at::kFloat ? Dtype::kF32
                       : tensor.scalar_type() == at::kInt ? Dtype::kU32
                                                          : Dtype::kF8E4M3;
    list.push_back({name, type, tensor.sizes().vec(), std::as_bytes(std::span(bytes.back()))});
  }
  io::write_safetensors(dir.at("model.safetensors"), list, {});
  json config = core::parse_json(
      core::read_text_file(family_path("gemma4_moe", "config.json"), 1 << 20), "config.json");
  if (!quantization.is_null()) config.update(quantization);
  dir.write("config.json", config.dump());
}

// On 1 to 4 ranks, experts cut or dealt out.
void expect_logits(const std::string& folder, const at::Tensor& ids_BT, const at::Tensor& logits_TV,
                   const char* what) {
  test::on_ranks([&](const Group& group) {
    const auto file = io::TensorFile::open(folder);
    const auto model = load_model(*file, group).model;
    EXPECT_LE(test::largest_difference(test::logits_of(*model, ids_BT), logits_TV), 1e-4)
        << what << " on " << group.size();
  });
}

TEST(ApartExperts, ThatArePlainGiveTheLogitsOfThePublishedImplementation) {
  const TempDir dir;
  write_folder(dir, apart_tensors());
  const auto expected = test::read_reference(family_path("gemma4_moe", "ref.safetensors"));
  expect_logits(dir.path(), expected.ids_BT, expected.logits_TV, "plain");
}

at::Tensor logits_of_folder(const std::string& folder, const at::Tensor& ids_BT) {
  return test::logits_of(*load_model(*io::TensorFile::open(folder), Group()).model, ids_BT);
}

// As llm-compressor writes floats of 8 bits with a scale for each row.
TEST(ApartExperts, OfEightBitFloatsGiveTheLogitsOfTheirNumbers) {
  auto stored = apart_tensors(), plain = stored;
  for (const auto& [name, numbers] : apart_tensors()) {
    if (!is_of_expert(name)) continue;
    const at::Tensor scales = numbers.abs().amax(1, true) / 448;
    stored[name] = (numbers / scales).to(at::kFloat8_e4m3fn);
    stored[name + "_scale"] = scales;
    plain[name] = stored[name].to(at::kFloat) * scales;
  }
  const TempDir quantized, dense;
  write_folder(
      quantized, stored,
      {{"quantization_config",
        {{"quant_method", "compressed-tensors"},
         {"format", "float-quantized"},
         {"config_groups",
          {{"group_0",
            {{"weights", {{"type", "float"}, {"num_bits", 8}, {"strategy", "channel"}}}}}}}}}});
  write_folder(dense, plain);
  const auto ids_BT = test::read_reference(family_path("gemma4_moe", "ref.safetensors")).ids_BT;
  expect_logits(quantized.path(), ids_BT, logits_of_folder(dense.path(), ids_BT), "fp8");
}

// As MLX quantizes what a model has apart: gates and ups, whose rows are of 24 numbers, in quant
// groups of 8. Codes of 8 bits, the least in the first.
TEST(ApartExperts, OfMlxGiveTheLogitsOfTheirNumbers) {
  auto stored = apart_tensors(), plain = stored;
  constexpr int64_t kGroup = 8;
  json quantization = {{"bits", 8}, {"group_size", kGroup}};
  for (const auto& [name, numbers] : apart_tensors()) {
    if (!is_of_expert(name) || name.ends_with("down_proj.weight")) continue;
    const std::string base = name.substr(0, name.size() - std::string("weight").size());
    const at::Tensor groups = numbers.unflatten(1, {-1, kGroup});
    const at::Tensor least = groups.amin(2, true);
    const at::Tensor scales = (groups.amax(2, true) - least) / 255;
    const at::Tensor codes = ((groups - least) / scales).round();
    stored[name] = codes.flatten(1).to(at::kByte).contiguous().view(at::kInt);
    stored[base + "scales"] = scales.squeeze(2);
    stored[base + "biases"] = least.squeeze(2);
    plain[name] = (codes * scales + least).flatten(1);
  }
  const TempDir quantized, dense;
  write_folder(quantized, stored, {{"quantization", quantization}});
  write_folder(dense, plain);
  const auto ids_BT = test::read_reference(family_path("gemma4_moe", "ref.safetensors")).ids_BT;
  expect_logits(quantized.path(), ids_BT, logits_of_folder(dense.path(), ids_BT), "affine");
}

}  // namespace
}  // namespace weft::models
