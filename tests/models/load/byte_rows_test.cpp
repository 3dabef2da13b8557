#include <gtest/gtest.h>

#include <map>

#include "tests/io/views/plan_fixture.h"
#include "tests/models/published_logits.h"
#include "tests/models/up_and_down.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/quantized_linear.h"

// Matrices of 8-bit numbers with a scale for each row, as bitsandbytes writes them, read for any
// number of ranks. The expected values follow the format's description: q * largest / 127.

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

constexpr int64_t kByteRows = 50;

// Two random matrices, "up" and "down".
struct ByteRowFile {
  int64_t columns;
  std::vector<NamedType> types;
  std::map<std::string, std::string> bytes;
  std::map<std::string, at::Tensor> values;

  explicit ByteRowFile(int64_t in = 96, bool says_order = true) : columns(in) {
    at::manual_seed(3);
    for (const std::string base : {"up", "down"}) {
      const at::Tensor q = at::randint(-127, 128, {kByteRows, in}, at::kChar);
      // Of so few bits that all products are exact in float32.
      const at::Tensor largest = at::rand({kByteRows}).to(at::kHalf).to(at::kFloat) * 127;
      set(base + ".weight", Dtype::kI8, q.sizes().vec(), bytes_of_tensor(q));
      set(base + ".SCB", Dtype::kF32, {kByteRows}, bytes_of_tensor(largest));
      if (says_order) set(base + ".weight_format", Dtype::kU8, {}, std::string(1, '\0'));
      values[base] = q.to(at::kFloat) * (largest / 127).unsqueeze(1);
    }
  }
  void set(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape,
           const std::string& data) {
    std::erase_if(types, [&](const NamedType& type) { return type.name == name; });
    types.push_back({name, dtype, shape});
    bytes[name] = data;
  }
  std::string error() const {
    const PlanFile file(types, bytes);
    return replaced(error_text([&] {
                      const LoadPlan plan(file.file(), up_and_down(kByteRows, columns, 4), 2);
                      WeightReader(file.file(), plan, 0).linear("up", false);
                    }),
                    file.file().path(), "FILE");
  }
};

TEST(ByteRowFiles, AreCutForAnyNumberOfRanks) {
  for (const ByteRowFile& tensors : {ByteRowFile(96), ByteRowFile(72), ByteRowFile(96, false)}) {
    const PlanFile file(tensors.types, tensors.bytes);
    expect_up_and_down<nn::QuantizedLinearImpl>(file.file(),
                                                up_and_down(kByteRows, tensors.columns, 8),
                                                tensors.values.at("up"), tensors.values.at("down"));
  }
}

TEST(ByteRowFiles, ThatDoNotFitAreRefused) {
  ByteRowFile turing;
  EXPECT_EQ(turing.error(), "no error");
  turing.set("up.weight_format", Dtype::kU8, {}, "\2");
  EXPECT_EQ(turing.error(),
            "ConfigError: FILE: tensor 'up.weight_format': order 2 of numbers (col_turing) is not "
            "supported; supported: 0 (row); save the model anew with a later bitsandbytes");
  turing.set("up.weight_format", Dtype::kU8, {}, "\x7");
  EXPECT_EQ(turing.error(),
            "ConfigError: FILE: tensor 'up.weight_format': order 7 of numbers (unknown) is not "
            "supported; supported: 0 (row); save the model anew with a later bitsandbytes");
  turing.set("up.weight_format", Dtype::kU8, {2}, std::string(2, '\0'));
  EXPECT_EQ(turing.error(),
            "FormatError: FILE: tensor 'up.weight_format': U8 of 2 bytes, expected U8 of one");
  ByteRowFile scales;
  scales.set("up.SCB", Dtype::kF32, {kByteRows, 1}, scales.bytes["up.SCB"]);
  EXPECT_EQ(scales.error(),
            "FormatError: FILE: tensor 'up.SCB': F32 [50, 1] beside I8, expected F32 [50] beside "
            "I8");
  EXPECT_EQ(ByteRowFile(44).error(),
            "FormatError: FILE: tensor 'up.SCB': quant groups of 8 in 44 columns, expected a "
            "multiple of 8");
}

TEST(ByteRowModels, GiveTheLogitsOfThePublishedImplementation) {
  expect_published_logits({"qwen2_int8"});
}

}  // namespace
}  // namespace weft::models
