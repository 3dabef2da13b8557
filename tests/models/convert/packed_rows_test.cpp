// Packed matrices with one scale for each row, written as MLX's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/up_and_down.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/convert/export.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using test::family_path;
using testing::TempDir;
using Tensors = std::map<std::string, at::Tensor>;

// GPTQ's parts of 4-bit codes with a scale for each row ("group_size" -1), around the middle code.
void add_gptq_rows(const std::string& base, const at::Tensor& numbers, Tensors& tensors) {
  const at::Tensor scales = (numbers.abs().amax(1, true) / 7).to(at::kHalf);
  const at::Tensor codes = (numbers / scales.to(at::kFloat)).round().clamp(-8, 7).to(at::kLong) + 8;
  const at::Tensor eights = codes.t().contiguous().view({-1, 8, codes.size(0)});
  at::Tensor words = at::zeros({eights.size(0), eights.size(2)}, at::kLong);
  for (int64_t i = 0; i < 8; ++i) words += eights.select(1, i) * (int64_t{1} << (4 * i));
  tensors[base + ".qweight"] = words.to(at::kInt);
  // Zero points are stored minus one.
  tensors[base + ".qzeros"] = at::full({1, codes.size(0) / 8}, 0x77777777, at::kInt);
  tensors[base + ".scales"] = scales.t().contiguous();
}

// A model all of whose attention and experts are packed so.
Tensors packed_tensors() {
  const auto plain = io::TensorFile::open(family_path("mixtral_plain"));
  Tensors tensors;
  for (const io::TensorMeta& tensor : plain->tensors()) {
    const at::Tensor numbers = io::load_tensor(*plain, tensor.name, at::kFloat);
    const bool is_packed = tensor.name.find(".self_attn.") != std::string::npos ||
                           tensor.name.find(".experts.") != std::string::npos;
    if (is_packed) {
      add_gptq_rows(tensor.name.substr(0, tensor.name.rfind('.')), numbers, tensors);
    } else {
      tensors[tensor.name] = numbers;
    }
  }
  return tensors;
}

void write_packed(const TempDir& dir, const Tensors& tensors) {
  std::vector<std::string> bytes;
  std::vector<io::TensorToWrite> list;
  bytes.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    bytes.push_back(test::bytes_of_tensor(tensor));
    const io::Dtype type = tensor.scalar_type() == at::kFloat  ? io::Dtype::kF32
                           : tensor.scalar_type() == at::kHalf ? io::Dtype::kF16
                                                               : io::Dtype::kI32;
    list.push_back({name, type, tensor.sizes().vec(), std::as_bytes(std::span(bytes.back()))});
  }
  io::write_safetensors(dir.at("model.safetensors"), list, {});
}

// MLX has quant groups of 32, 64 and 128 alone.
TEST(ExportPackedRows, RepeatsTheScaleOfARowForEachQuantGroup) {
  const TempDir packed, written;
  const Tensors tensors = packed_tensors();
  write_packed(packed, tensors);
  nlohmann::json config = core::parse_json(
      core::read_text_file(family_path("mixtral_plain", "config.json"), 1 << 20), "config.json");
  config["quantization_config"] = {
      {"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}, {"desc_act", false}};
  packed.write("config.json", config.dump());
  config.erase("quantization_config");
  config["quantization"] = export_weights(*io::TensorFile::open(packed.path()), {}, dist::Group(),
                                          written.path(), [](uint64_t, uint64_t) {});
  EXPECT_EQ(config["quantization"],
            nlohmann::json({{"bits", 4}, {"group_size", 32}, {"mode", "affine"}}));
  written.write("config.json", config.dump());
  const std::string name = "model.layers.0.self_attn.q_proj.scales";
  const at::Tensor scales =
      io::load_tensor(*io::TensorFile::open(written.path()), name, at::kFloat);
  EXPECT_TRUE(at::equal(scales, tensors.at(name).to(at::kFloat).t().expand({64, 2})));
  const auto ids_BT = test::read_reference(family_path("mixtral_plain", "ref.safetensors")).ids_BT;
  const auto logits_of_folder_in = [&](const TempDir& dir) {
    return test::logits_of(*load_model(*io::TensorFile::open(dir.path()), dist::Group()).model,
                           ids_BT);
  };
  EXPECT_LE(test::largest_difference(logits_of_folder_in(packed), logits_of_folder_in(written)),
            1e-4);
}

}  // namespace
}  // namespace weft::models
