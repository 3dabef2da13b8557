#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/half_linear.h"

// Models whose matrices stay in the file's half type: the numbers are those of the same model
// widened to float32.

namespace weft::models {
namespace {

using dist::Group;
using test::model_data;
using test::on_ranks;

// The plain fixture in another type.
void write_halves(const testing::TempDir& dir, at::ScalarType type, io::Dtype dtype) {
  const std::string plain = model_data("mlx/plain_f32");
  const auto file = io::TensorFile::open(plain);
  std::vector<at::Tensor> held;
  std::vector<io::TensorToWrite> tensors;
  for (const io::TensorMeta& meta : file->tensors()) {
    held.push_back(io::load_tensor(*file, meta.name, at::kFloat).to(type).contiguous());
    const auto* bytes = static_cast<const std::byte*>(held.back().const_data_ptr());
    tensors.push_back({meta.name, dtype, meta.shape, {bytes, held.back().nbytes()}});
  }
  io::write_safetensors(dir.at("model.safetensors"), tensors, {});
  std::filesystem::copy_file(plain + "/config.json", dir.at("config.json"));
}

at::Tensor halves_logits(const io::TensorFile& file, const Group& group, bool as_stored) {
  LoadOptions options;
  if (as_stored) options.dtype = at::ScalarType::Undefined;
  const auto model = load_model(file, group, options).model;
  const c10::InferenceMode inference;
  const at::Tensor ids_BT = at::tensor({1, 2, 3, 200, 17, 5}, at::kLong).unsqueeze(0);
  return model->logits(model->forward(ids_BT, nullptr));
}

void expect_halves_as_stored(at::ScalarType type, io::Dtype dtype) {
  const testing::TempDir dir;
  write_halves(dir, type, dtype);
  const auto file = io::TensorFile::open(dir.path());
  const LoadPlan plan = make_plan(*file, 1);
  const WeightReader reader(*file, plan, 0, {}, at::ScalarType::Undefined);
  const auto linear = reader.linear("model.layers.0.mlp.down_proj", false);
  const auto half = std::dynamic_pointer_cast<nn::HalfLinearImpl>(linear);
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(half->weight.scalar_type(), type);
  on_ranks(
      [&](const Group& group) {
        test::expect_close(halves_logits(*file, group, true), halves_logits(*file, group, false),
                           "logits", 1e-5);
      },
      {1, 2, 3});
}

TEST(HalvesAsStored, OfBfloat16GiveFloat32sNumbers) {
  expect_halves_as_stored(at::kBFloat16, io::Dtype::kBF16);
}

TEST(HalvesAsStored, OfFloat16GiveFloat32sNumbers) {
  expect_halves_as_stored(at::kHalf, io::Dtype::kF16);
}

}  // namespace
}  // namespace weft::models
